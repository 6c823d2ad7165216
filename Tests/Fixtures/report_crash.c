// flags: -O1 -g -fno-omit-frame-pointer
/* Writes through a null pointer three calls deep. */
__attribute__((noinline)) static void report_victim(int *account) {
  *(volatile int *)account = 42; /* the fault */
}
__attribute__((noinline)) static void report_middle(int *account) {
  report_victim(account);
  __asm__ volatile("");
}
int main(int count, char **words) {
  (void)words;
  report_middle(count > 5 ? &count : (int *)0);
  return 0;
}
