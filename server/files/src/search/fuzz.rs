//! A short run of the fuzz targets without a fuzzer: their seeds, and changes of these by a fixed generator. What a fuzzer
//! found once is kept as a seed and so is looked at by every run of the suite.

use std::{fs, path::Path};

#[path = "../../fuzz/bodies.rs"]
mod bodies;

/// Changes of each seed.
const CHANGE_COUNT: u64 = 120;

/// Numbers of Knuth's MMIX generator.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

#[expect(clippy::disallowed_methods, reason = "seeds are files beside the targets")]
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let entries = fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn change(bytes: &mut Vec<u8>, other: &[u8], numbers: &mut Numbers) {
    let place = numbers.below(bytes.len() + 1);
    match numbers.below(6) {
        0 => bytes.truncate(place),
        1 => bytes.insert(place, numbers.below(256) as u8),
        2 => bytes.insert(place, b"\n\r*?[](){}|\\^$.+-/!,kKsS\0\xff"[numbers.below(26)]),
        3 if place < bytes.len() => drop(bytes.remove(place)),
        4 if place < bytes.len() => bytes[place] ^= 1 << numbers.below(8),
        _ => {
            let start = numbers.below(other.len());
            let end = (start + numbers.below(16)).min(other.len());
            bytes.splice(place..place, other[start..end].iter().copied());
        }
    }
}

#[test]
fn the_seeds_of_the_fuzz_targets_and_their_changes_pass() {
    for (target, body) in bodies::BODIES {
        let seeds = seeds(target);
        assert!(seeds.len() >= 8, "{target} has {} seeds", seeds.len());
        let mut numbers = Numbers(seeds.len() as u64);
        for seed in &seeds {
            body(seed);
            for _ in 0..CHANGE_COUNT {
                let mut bytes = seed.clone();
                for _ in 0..=numbers.below(4) {
                    change(&mut bytes, &seeds[numbers.below(seeds.len())], &mut numbers);
                }
                body(&bytes);
            }
        }
    }
}
