//! The same generated operations on two directories, compared after each: results, errnos, attributes of all paths
//! concerned, listings and contents. One directory is on a native file system, which is thereby the model.

mod operation;
mod world;

pub use operation::Operation;

use crate::random::Random;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;
use world::World;

/// How many operations a failure's report shows.
const HISTORY: usize = 30;
/// The clock of file times may tick as slowly as this; what an operation moves must be seen to have moved.
const TICK: Duration = Duration::from_millis(5);
/// Whole trees are compared every so many operations.
const COMPARE_EVERY: u64 = 200;

/// Runs `operations` generated operations on both directories.
///
/// # Errors
/// The first difference, with the operations that led there.
pub fn run(a: &Path, b: &Path, seed: u64, operations: u64) -> Result<(), String> {
    let mut worlds = [World::new(a)?, World::new(b)?];
    let mut random = Random::new(seed);
    let mut history = Vec::new();
    let mut outcome = Ok(());
    for number in 0..operations {
        let operation = Operation::generate(&mut random);
        history.push(format!("{operation:?}"));
        if history.len() > HISTORY {
            history.remove(0);
        }
        std::thread::sleep(TICK);
        let [one, other] = &mut worlds;
        let step = compare("result", &one.apply(&operation), &other.apply(&operation))
            .and_then(|()| {
                operation.paths().iter().try_for_each(|path| compare(path, &one.look(path), &other.look(path)))
            })
            .and_then(|()| {
                let whole = number % COMPARE_EVERY == COMPARE_EVERY - 1 || number + 1 == operations;
                if whole { compare_trees(one, other) } else { Ok(()) }
            });
        if let Err(what) = step {
            let mut report = format!("seed {seed}, operation {number} {operation:?}: {what}\nlast operations:");
            for line in &history {
                let _ = write!(report, "\n  {line}");
            }
            outcome = Err(report);
            break;
        }
    }
    for world in &mut worlds {
        world.remove();
    }
    outcome
}

fn compare(what: &str, a: &str, b: &str) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{what} differs\n  first:  {a}\n  second: {b}")) }
}

fn compare_trees(a: &World, b: &World) -> Result<(), String> {
    let (one, other) = (a.tree(), b.tree());
    for (a, b) in one.iter().zip(&other) {
        compare("the tree", a, b)?;
    }
    compare("the number of files", &one.len().to_string(), &other.len().to_string())
}
