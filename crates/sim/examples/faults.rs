//! `cargo run --release -p ullage-sim --example faults -- FIRST COUNT THREADS`: a campaign without the command line tool.

use ullage_sim::faults::{Setup, campaign};

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let (first, count) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1000));
    let threads = numbers.next().unwrap_or(2) as usize;
    let say: fn(&str) = |line| println!("{line}");
    let setup = Setup { say: std::env::var_os("VERBOSE").map(|_| say), ..Setup::default() };
    let began = std::time::Instant::now();
    let breaches = campaign(first, count, threads, &setup, &|_, _| {});
    for breach in &breaches {
        println!("{breach}");
    }
    println!("{count} seeds from {first}: {} breaches, {:.1} s", breaches.len(), began.elapsed().as_secs_f64());
}
