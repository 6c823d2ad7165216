// flags: -O -g -C panic=abort
// Ten threads; the second one dies of a real fault, two inlined calls deep.
use std::sync::{Arc, Barrier};
use std::thread;

#[inline(always)]
fn store_price(price: *mut i32, value: i32) {
    unsafe { *price = value } // top frame
}

#[inline(always)]
fn fill_shelf(shelf: usize, value: i32) {
    store_price(shelf as *mut i32, value + 3); // inlined caller
}

#[inline(never)]
fn restock(shelf: usize) -> usize {
    fill_shelf(shelf, shelf as i32); // function
    std::hint::black_box(shelf)
}

fn main() {
    let all_alive = Arc::new(Barrier::new(10));
    for number in 2..=10 {
        let all_alive = all_alive.clone();
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                all_alive.wait();
                if number == 2 {
                    restock(std::hint::black_box(16));
                }
                loop {
                    thread::park();
                }
            })
            .unwrap();
    }
    all_alive.wait();
    loop {
        thread::park();
    }
}
