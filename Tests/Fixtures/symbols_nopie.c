// flags: -O2 -g -no-pie -pthread
#include "symbols_c.c"
