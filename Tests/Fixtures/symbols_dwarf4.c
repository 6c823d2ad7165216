// flags: -O2 -gdwarf-4 -gz -pthread
#include "symbols_c.c"
