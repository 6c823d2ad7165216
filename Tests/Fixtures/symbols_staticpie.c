// flags: -O2 -g -static-pie -pthread
#include "symbols_c.c"
