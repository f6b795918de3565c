//! Interleaved pairs: the baseline and a system take turns, so that what disturbs the machine disturbs both.

use crate::caches;
use crate::environment::Environment;
use crate::ground::Ground;
use crate::measurement::Measurement;
use crate::options::Options;
use crate::random::Random;
use crate::report::{Report, Series};
use crate::system::{self, MessageCounts, Named};
use crate::workload::{Context as Needs, Workload, catalogue};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;

/// A system that is up, for one workload.
struct Side<'a> {
    named: &'a mut Named,
    place: PathBuf,
    directory: PathBuf,
    samples: Vec<Vec<Measurement>>,
    messages: Option<MessageCounts>,
}

/// Runs what `options` ask for; `progress` is told what happens, for a person.
pub fn run(options: &Options, progress: &dyn Fn(&str)) -> Result<Report> {
    let chosen = choose(&options.workloads)?;
    ensure!(options.runs > 0, "no runs, no medians");
    let mut report = Report::new(Environment::here(), options.clone());
    let mut systems = Vec::new();
    for spec in &options.systems {
        let named = system::parse(spec, &options.program, &options.extra_up)?;
        match named.system.unavailable() {
            None => systems.push(named),
            Some(reason) => report.skip(progress, &named.name, None, reason),
        }
    }
    let Some((baseline, others)) = systems.split_first_mut() else { bail!("no system can run here") };
    let ground = Ground::new(&options.work, options.image_bytes).context("prepare the ext4 that all stand on")?;
    let needs = Needs {
        helper: options.helper.clone(),
        scratch: ground.root().join("scratch"),
        cache: ground.work().join("ullage-bench-sources"),
        seed: options.seed,
        quick: options.quick,
        file_bytes: options.file_bytes,
    };
    let mut order = Random::new(options.seed);
    for workload in chosen {
        if let Some(reason) = workload.unavailable(&needs) {
            report.skip(progress, "all", Some(workload.name()), reason);
            continue;
        }
        let mut pairs = Pairs { ground: &ground, needs: &needs, workload: &*workload, runs: options.runs, progress };
        if others.is_empty() {
            match pairs.measure(vec![baseline], &mut order) {
                Ok(series) => report.series.extend(series),
                Err(error) => report.skip(progress, &baseline.name, Some(workload.name()), format!("{error:#}")),
            }
        }
        for other in &mut *others {
            if workload.needs_data() && !other.system.keeps_data() {
                continue;
            }
            let name = other.name.clone();
            match pairs.measure(vec![baseline, other], &mut order) {
                Ok(series) => report.series.extend(series),
                // One system that fails one workload must not cost the figures of the rest.
                Err(error) => report.skip(progress, &name, Some(workload.name()), format!("{error:#}")),
            }
        }
    }
    Ok(report)
}

/// The workloads that the names mean.
fn choose(names: &[String]) -> Result<Vec<Box<dyn Workload>>> {
    let all = catalogue();
    let means = |name: &str, workload: &str| {
        workload == name || workload.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    for name in names {
        ensure!(all.iter().any(|w| means(name, &w.name())), "no workload {name:?}; --list shows what there is");
    }
    // An exact name wins over the group: `postmark` alone is one workload, `metarates` a group.
    let exact = |name: &String| all.iter().any(|w| w.name() == *name);
    let wanted = |workload: &str| names.iter().any(|n| if exact(n) { n == workload } else { means(n, workload) });
    let picked: Vec<bool> = all.iter().map(|w| names.is_empty() || wanted(&w.name())).collect();
    Ok(all.into_iter().zip(picked).filter_map(|(workload, picked)| picked.then_some(workload)).collect())
}

struct Pairs<'a> {
    ground: &'a Ground,
    needs: &'a Needs,
    workload: &'a dyn Workload,
    runs: usize,
    progress: &'a dyn Fn(&str),
}

impl Pairs<'_> {
    /// Measures one or two systems on the workload; the first is the baseline.
    fn measure(&mut self, systems: Vec<&mut Named>, order: &mut Random) -> Result<Vec<Series>> {
        let mut sides = Vec::new();
        let result = self.measure_inner(systems, &mut sides, order);
        for side in &mut sides {
            let ended = side.named.system.down();
            let removed = fs::remove_dir_all(&side.place);
            if result.is_ok() {
                ended?;
                removed.with_context(|| format!("remove {}", side.place.display()))?;
            }
        }
        let _ = fs::remove_dir_all(&self.needs.scratch);
        result?;
        Series::of(
            self.workload,
            self.needs,
            sides.into_iter().map(|side| (side.named.name.clone(), side.samples, side.messages)),
        )
    }

    fn measure_inner<'s>(
        &self,
        systems: Vec<&'s mut Named>,
        sides: &mut Vec<Side<'s>>,
        order: &mut Random,
    ) -> Result<()> {
        fs::create_dir_all(&self.needs.scratch)?;
        for (number, named) in systems.into_iter().enumerate() {
            let place = self.ground.root().join(format!("system{number}"));
            fs::create_dir(&place)?;
            sides.push(Side { named, place, directory: PathBuf::new(), samples: Vec::new(), messages: None });
        }
        up(sides)?;
        for side in &mut *sides {
            (self.progress)(&format!("{}: prepare on {}", self.workload.name(), side.named.name));
            self.workload
                .prepare(self.needs, &side.directory)
                .with_context(|| format!("prepare on {}", side.named.name))?;
        }
        let count = sides.len();
        if !self.workload.cold() {
            for at in 0..count {
                self.sample(sides, at, self.needs.seed)?;
            }
            for side in &mut *sides {
                side.samples.clear();
            }
        }
        let first = order.below(count as u64) as usize;
        for round in 0..self.runs {
            for turn in 0..count {
                self.sample(sides, (first + turn) % count, self.needs.seed + 1 + round as u64)?;
            }
        }
        for side in &mut *sides {
            self.workload.cleanup(self.needs, &side.directory)?;
            let left = fs::read_dir(&side.directory)?.count();
            ensure!(left == 0, "{} left {left} entries on {}", self.workload.name(), side.named.name);
        }
        Ok(())
    }

    /// One run on one side, whatever came before it settled or forgotten.
    fn sample(&self, sides: &mut [Side], at: usize, seed: u64) -> Result<()> {
        if self.workload.cold() {
            for side in &mut *sides {
                side.named.system.down()?;
            }
            self.ground.remount()?;
            caches::drop_all()?;
            up(sides)?;
        }
        caches::settle();
        let side = &mut sides[at];
        let before = side.named.system.messages()?;
        let measured = self.workload.run(self.needs, &side.directory, seed);
        let measured = measured.with_context(|| format!("{} on {}", self.workload.name(), side.named.name))?;
        if let (Some(before), Some(after)) = (before, side.named.system.messages()?) {
            side.messages = Some(difference(&before, &after));
        }
        self.workload.reset(self.needs, &side.directory)?;
        if let Some(first) = measured.first() {
            let shown = format!("{} {}", first.metric, first.unit.show(first.value));
            (self.progress)(&format!("{}: {} on {}", self.workload.name(), shown, side.named.name));
        }
        side.samples.push(measured);
        Ok(())
    }
}

/// Starts all sides and finds where each works.
fn up(sides: &mut [Side]) -> Result<()> {
    for side in sides {
        let top = side.named.system.up(&side.place).with_context(|| format!("start {}", side.named.name))?;
        side.directory = top.join("bench");
        if !side.directory.exists() {
            fs::create_dir(&side.directory)?;
        }
    }
    Ok(())
}

/// What was served in between; kinds that were not are left out.
fn difference(before: &MessageCounts, after: &MessageCounts) -> MessageCounts {
    let counts =
        after.iter().map(|(kind, count)| (kind.clone(), count - before.get(kind).copied().unwrap_or(0).min(*count)));
    counts.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(asked: &[&str]) -> Vec<String> {
        let asked: Vec<String> = asked.iter().map(|&s| s.to_owned()).collect();
        choose(&asked).unwrap().iter().map(|w| w.name()).collect()
    }

    #[test]
    fn a_name_is_one_workload_and_a_group_is_all_of_it() {
        assert_eq!(names(&["postmark", "mail"]), ["postmark", "mail"]);
        assert_eq!(names(&["metarates-256"]), ["metarates-256-1", "metarates-256-2", "metarates-256-4"]);
        assert_eq!(names(&[]).len(), catalogue().len());
        let error = choose(&["no".into()]).err().unwrap().to_string();
        assert!(error.contains("no workload \"no\""), "{error}");
    }

    #[test]
    fn messages_are_counted_from_where_they_were() {
        let before = MessageCounts::from([("LOOKUP".into(), 5), ("OPEN".into(), 1)]);
        let after = MessageCounts::from([("LOOKUP".into(), 9), ("OPEN".into(), 1), ("CREATE".into(), 2)]);
        assert_eq!(difference(&before, &after), MessageCounts::from([("LOOKUP".into(), 4), ("CREATE".into(), 2)]));
    }
}
