// flags: -O -g -C panic=abort
// Generics and inlined functions, optimised; crashes in its second thread while ten are alive.
use std::sync::{Arc, Barrier};

mod billing {
    pub trait Priced {
        fn price(&self) -> i32;
    }

    pub struct Article(pub *const i32);

    impl Priced for Article {
        #[inline(always)]
        fn price(&self) -> i32 {
            unsafe { std::ptr::read_volatile(self.0) } // mark: price
        }
    }

    pub struct Invoice<T: Priced> {
        pub article: T,
        pub pieces: i32,
    }

    impl<T: Priced> Invoice<T> {
        #[inline(never)]
        pub fn total(&self) -> i32 {
            self.pieces * self.article.price() // mark: total
        }
    }

    #[inline(never)]
    pub fn pick(prices: &[i32], index: usize) -> i32 {
        prices[index] // mark: index
    }
}

#[inline(never)]
fn crash(how: &str) -> i32 {
    match how {
        "index" => billing::pick(&[1, 2, 3], how.len()) + 1, // mark: pick
        _ => {
            let invoice = billing::Invoice { article: billing::Article(std::ptr::null()), pieces: 3 };
            invoice.total() + 1 // mark: crash
        }
    }
}

fn main() {
    let how = std::env::args().nth(1).unwrap_or("null".to_string());
    let everybody = Arc::new(Barrier::new(11));
    let mut threads = Vec::new();
    for index in 0..10 {
        let everybody = everybody.clone();
        let how = how.clone();
        threads.push(std::thread::spawn(move || {
            everybody.wait();
            if index == 0 {
                println!("{}", crash(&how));
            }
            loop {
                std::thread::park();
            }
        }));
    }
    everybody.wait();
    for thread in threads {
        thread.join().unwrap();
    }
}
