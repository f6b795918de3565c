//! What a backing file costs the caller: create, write 8 KiB, close, open again, release; against plain files on the
//! same file system.
//!
//! ```text
//! cargo run --release -p ullage-pool --example bench -- DIRECTORY [FILES]
//! ```

use std::error::Error;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use ullage_pool::{Access, DirPool, Hint, Marks, Numbers, Pool, PoolConfig, Uuid};
use ullage_types::{FileId, Generation};

struct Counter(AtomicU64);

impl Numbers for Counter {
    fn next(&self) -> (FileId, Generation) {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        (FileId(number), Generation(number))
    }
}

struct NoMarks;

impl Marks for NoMarks {
    fn mark(&self, _: &[&[u8]]) -> Result<(), ullage_pool::Error> {
        Ok(())
    }

    fn clear(&self, _: &[u8]) {}
}

/// Times of one step.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn measure<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = step();
        self.0.push(start.elapsed());
        result
    }

    fn report(mut self, name: &str) {
        self.0.sort_unstable();
        let at = |part: f64| {
            let index = ((self.0.len() as f64 * part) as usize).min(self.0.len().saturating_sub(1));
            self.0.get(index).copied().unwrap_or_default().as_nanos() as f64 / 1000.0
        };
        println!("  {name:<24} {:>8.2} µs median {:>8.2} µs p90 {:>8.2} µs p99", at(0.5), at(0.9), at(0.99));
    }
}

fn pool(path: &Path, files: u64, pause: Duration) -> Result<(), Box<dyn Error>> {
    let config = PoolConfig::new(Uuid::random()?, None);
    let pool = DirPool::open(path, config, Arc::new(Counter(AtomicU64::new(1))), Arc::new(NoMarks))?;
    let data = vec![7; 8192];
    let [mut create, mut write, mut open, mut release] = [(); 4].map(|()| Times::default());
    for number in 0..2000 {
        // Demand, so that files are made ready before measuring.
        let fresh = pool.create(Hint { parent: FileId(1), pid: 1 })?;
        pool.release(fresh.binding);
        if number % 100 == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    std::thread::sleep(Duration::from_millis(300));
    let before = pool.stats();
    let start = Instant::now();
    for number in 0..files {
        let fresh = create.measure(|| pool.create(Hint { parent: FileId(1), pid: 1 }))?;
        write.measure(|| fresh.file.write_all_at(&data, 0))?;
        let binding = fresh.binding.clone();
        drop(fresh);
        drop(open.measure(|| pool.open(&binding, Access::Read))?);
        pool.closed(&binding);
        release.measure(|| pool.release(binding));
        if number % 32 == 31 {
            std::thread::sleep(pause);
        }
    }
    let elapsed = start.elapsed();
    let stats = pool.stats();
    println!(
        "pool, {} µs pause every 32 files: {:.0} files/s, {} of {files} were ready, {} recycled",
        pause.as_micros(),
        files as f64 / elapsed.as_secs_f64(),
        stats.hits - before.hits,
        stats.recycled - before.recycled
    );
    create.report("create");
    write.report("write 8 KiB");
    open.report("open for reading");
    release.report("release");
    let close = Instant::now();
    pool.close()?;
    println!("  close                    {:>8.2} ms", close.elapsed().as_secs_f64() * 1000.0);
    Ok(())
}

fn native(path: &Path, files: u64) -> Result<(), Box<dyn Error>> {
    let data = vec![7; 8192];
    let [mut create, mut write, mut open, mut unlink] = [(); 4].map(|()| Times::default());
    let start = Instant::now();
    for number in 0..files {
        let name = path.join(number.to_string());
        let file = create.measure(|| std::fs::File::create_new(&name))?;
        write.measure(|| file.write_all_at(&data, 0))?;
        drop(file);
        drop(open.measure(|| std::fs::File::open(&name))?);
        unlink.measure(|| std::fs::remove_file(&name))?;
    }
    println!("native: {:.0} files/s", files as f64 / start.elapsed().as_secs_f64());
    create.report("create");
    write.report("write 8 KiB");
    open.report("open for reading");
    unlink.report("unlink");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: bench DIRECTORY [FILES]")?;
    let files = arguments.next().map_or(Ok(20_000), |files| files.parse())?;
    for (name, pause) in [("native", None), ("full", Some(0)), ("paced", Some(2000))] {
        let path = Path::new(&directory).join(format!("ullage-bench-{name}-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        let result = match pause {
            None => native(&path, files),
            Some(pause) => pool(&path, files, Duration::from_micros(pause)),
        };
        std::fs::remove_dir_all(&path)?;
        result?;
    }
    Ok(())
}
