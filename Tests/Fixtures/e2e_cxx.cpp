// flags: -O2 -g -pthread -std=c++17
// Ten threads; the second one dies of a real fault, two inlined calls deep, in a template.
#include <pthread.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <thread>

static pthread_barrier_t all_alive;

namespace warehouse {
template <class Value>
struct Shelf {
  std::uintptr_t place;
  __attribute__((always_inline)) inline void store_price(Value value) {
    *reinterpret_cast<volatile Value *>(place) = value;  // top frame
  }
  __attribute__((always_inline)) inline void fill_shelf(Value value) {
    store_price(value + 3);  // inlined caller
  }
};

__attribute__((noinline)) void restock(Shelf<int> shelf) {
  shelf.fill_shelf(static_cast<int>(shelf.place));  // function
  __asm__ volatile("" ::: "memory");
}
}  // namespace warehouse

static void work(int number) {
  pthread_setname_np(pthread_self(), ("worker-" + std::to_string(number)).c_str());
  pthread_barrier_wait(&all_alive);
  if (number == 2) warehouse::restock({16});
  for (;;) pause();
}

int main() {
  pthread_barrier_init(&all_alive, nullptr, 10);
  for (int number = 2; number <= 10; number++) std::thread(work, number).detach();
  pthread_barrier_wait(&all_alive);
  for (;;) pause();
}
