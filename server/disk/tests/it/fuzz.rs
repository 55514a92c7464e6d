//! The fuzz targets' own functions over their seeds and over changes of these, drawn from a seed: so they are run by every
//! toolchain, and a failure names the run that repeats it. `DORMOUSE_MUTATION_FACTOR` multiplies the runs.

use std::{fs, path::Path, sync::Arc};

use dormouse_disk::MemorySource;

use crate::{
    bodies::{TARGETS, exercise::exercise, packed, seal},
    image::Random,
};

const RUN_COUNT: u64 = 150;

fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let entries = fs::read_dir(&folder).expect("the target has seeds").map(|entry| entry.expect("an entry").path());
    let mut seeds: Vec<_> = entries
        .map(|path| {
            (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("a seed"))
        })
        .collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

/// A few changes of the kinds that libFuzzer makes.
fn change(random: &mut Random, input: &mut Vec<u8>, other: &[u8]) {
    for _ in 0..1 + random.below(6) {
        if input.is_empty() {
            return;
        }
        let at = random.below(input.len());
        match random.below(7) {
            0 => input[at] ^= 1 << random.below(8),
            1 => input[at] = random.next() as u8,
            2 => {
                let count = 1 + random.below(4);
                input[at..].iter_mut().take(count).for_each(|byte| *byte = 0xFF);
            }
            3 => drop(input.drain(at..(at + 1 + random.below(8)).min(input.len()))),
            4 => input.insert(at, random.next() as u8),
            5 => {
                let from = random.below(other.len());
                let count = (1 + random.below(64)).min(other.len() - from);
                input.splice(at..at, other[from..from + count].iter().copied());
            }
            _ => input.truncate(at),
        }
    }
}

fn runs(target: &str) {
    let (_, body) = TARGETS.iter().find(|(name, _)| *name == target).expect("the target is one of the table's");
    let factor = std::env::var("DORMOUSE_MUTATION_FACTOR").ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = seeds(target);
    for (name, input) in &seeds {
        if std::panic::catch_unwind(|| body(input)).is_err() {
            panic!("{target}: the seed {name} panics");
        }
    }
    for run in 0..RUN_COUNT * factor.unwrap_or(1) {
        let mut random = Random::new(run);
        let mut input = seeds[random.below(seeds.len())].1.clone();
        let other = &seeds[random.below(seeds.len())].1;
        change(&mut random, &mut input, other);
        if std::panic::catch_unwind(|| body(&input)).is_err() {
            panic!("{target}: run {run} panics");
        }
    }
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test] fn $name() { runs(stringify!($name)) })*
    };
}

targets! { image sealed journal directory partition qcow2 }

/// A seed that no longer opens would prove nothing.
#[test]
fn seeds_are_disks_that_open() {
    for target in ["image", "sealed", "journal"] {
        for (name, input) in seeds(target) {
            let packed = if target == "journal" { &input[1..] } else { &input[..] };
            let disk = packed::unpack(packed);
            let seen = exercise(Arc::new(MemorySource::new(disk.clone())));
            assert!(seen.is_some_and(|seen| seen >= 3), "{target}/{name}: {seen:?} names");
            // Sealing what is sound changes nothing of what is read.
            let mut sealed = disk;
            seal::journal(&mut sealed);
            seal::metadata(&mut sealed);
            assert_eq!(exercise(Arc::new(MemorySource::new(sealed))), seen, "{target}/{name}, sealed again");
        }
    }
}

#[test]
fn every_target_is_tested_and_built() {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/Cargo.toml")).expect("read");
    let built: Vec<&str> =
        manifest.lines().filter_map(|line| line.strip_prefix("path = \"targets/")?.strip_suffix(".rs\"")).collect();
    let mut known: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(built, known);
    known.sort_unstable();
    let mut tested = ["image", "sealed", "journal", "directory", "partition", "qcow2"];
    tested.sort_unstable();
    assert_eq!(known, tested);
}

#[test]
fn packing_loses_nothing() {
    let mut random = Random::new(5);
    for _ in 0..50 {
        let mut disk = vec![0; (1 + random.below(20)) << 10];
        for _ in 0..random.below(40) {
            let at = random.below(disk.len());
            let count = random.below(600);
            disk[at..].iter_mut().take(count).for_each(|byte| *byte = random.next() as u8);
        }
        assert_eq!(packed::unpack(&packed::pack(&disk)), disk);
    }
}
