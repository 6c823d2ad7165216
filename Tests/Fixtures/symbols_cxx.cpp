// flags: -O2 -g -pthread
// Namespaces, templates, lambdas and exceptions, optimised; crashes in its second thread while ten
// are alive.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <unistd.h>

static std::atomic<int> sink;

namespace billing {

struct Account {
  int balance;
};

template <typename Value>
class Ledger {
 public:
  explicit Ledger(Value *first) : first_(first) {}
  inline __attribute__((always_inline)) int last() const {
    return first_->balance; /* mark: last */
  }
  __attribute__((noinline)) int charge(int amount) const {
    sink += amount;
    return last() - amount; /* mark: charge */
  }

 private:
  Value *first_;
};

__attribute__((noinline)) int with(const std::function<int(int)> &action) {
  return action(4) + 1; /* mark: with */
}

namespace {
__attribute__((noinline)) void refuse(const std::string &why) {
  throw std::runtime_error(why); /* mark: throw */
}
}  // namespace

}  // namespace billing

static void crash(const char *how) {
  if (std::strcmp(how, "null") == 0) {
    billing::Ledger<billing::Account> ledger(nullptr);
    auto act = [&ledger](int amount) {
      return ledger.charge(amount) + 2; /* mark: lambda */
    };
    sink += billing::with(act);
  } else if (std::strcmp(how, "throw") == 0) {
    billing::refuse("no money");
  }
}

int main(int count, char **arguments) {
  const char *how = count > 1 ? arguments[1] : "null";
  pthread_barrier_t everybody;
  pthread_barrier_init(&everybody, nullptr, 11);
  std::vector<std::thread> threads;
  for (int index = 0; index < 10; index++)
    threads.emplace_back([index, how, &everybody] {
      pthread_barrier_wait(&everybody);
      if (index == 0) crash(how);
      for (;;) pause();
    });
  pthread_barrier_wait(&everybody);
  for (auto &thread : threads) thread.join();
}
