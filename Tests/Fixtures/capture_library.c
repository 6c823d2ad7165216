// flags: -shared -fPIC -O1 -g -fno-omit-frame-pointer
/* A library with a variable of its own that changes: loaded by capture_victim. */
static volatile int library_counter = 1;
int library_touch(int value) {
  library_counter = value;
  return library_counter;
}
