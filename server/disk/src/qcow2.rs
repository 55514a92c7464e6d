//! A chain of qcow2 layers, each of them named by the record.
//!
//! What an image says of its backing file or its data file is never opened: an image could name any file of the host. It is
//! only compared with the record: an image that has a backing file where the record has no further layer, or the other way
//! round, would read as zeros or as somebody else's bytes, so it is refused.
//!
//! Source: QEMU's `docs/interop/qcow2.rst`.

mod bytes;
mod compressed;
mod tables;

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use self::{
    bytes::{Copies, read_padded},
    compressed::Clusters,
    tables::{Found, Tables, Words},
};
use crate::{BlockSource, Format, Layer, LayerStamp, OpenError, source::LayerFile};

const HEADER_BYTES: usize = 104;
/// Largest table of the first level that QEMU takes, in bytes.
const TABLE_BYTES_MAX: u64 = 32 << 20;

/// Bits of `incompatible_features`.
mod incompatible {
    /// Reference counts may be wrong, which concerns writers only.
    pub(super) const DIRTY: u64 = 1;
    pub(super) const CORRUPT: u64 = 2;
    pub(super) const DATA_FILE: u64 = 4;
    /// Something else than deflate.
    pub(super) const COMPRESSION: u64 = 8;
    pub(super) const EXTENDED_L2: u64 = 16;
}

/// The layers of one disk, read as one.
pub(crate) struct Chain {
    /// From the top; there is at least one.
    layers: Vec<Opened>,
    clusters: Clusters,
    has_device: bool,
}

/// A layer that is open.
struct Opened {
    layer: LayerFile,
    kind: Kind,
}

enum Kind {
    /// Only the last one.
    Raw,
    Qcow2 {
        tables: Tables,
        words: Box<Words>,
    },
}

impl Opened {
    /// Length of the disk, as this layer has it.
    fn disk_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Raw => self.layer.opened().size_bytes,
            Kind::Qcow2 { tables, .. } => tables.disk_bytes,
        }
    }
}

fn unavailable(what: &str) -> OpenError {
    OpenError::Unavailable { what: what.to_owned() }
}

impl Chain {
    /// Opens the layers; `layers` is not empty.
    pub(crate) fn open(layers: &[Layer]) -> Result<Self, OpenError> {
        let (mut opened, mut has_device) = (Vec::with_capacity(layers.len()), false);
        for (index, record) in layers.iter().enumerate() {
            let failed = |source| OpenError::Io { path: record.path.clone(), source };
            let layer = LayerFile::open(&record.path).map_err(failed)?;
            has_device |= layer.is_device();
            let has_backing = index + 1 < layers.len();
            let kind = match record.format {
                Format::Raw if has_backing => return Err(unavailable("raw_layer_with_backing")),
                Format::Raw => Kind::Raw,
                Format::Qcow2 => {
                    let tables = check_header(&layer.file, &record.path, has_backing)?;
                    Kind::Qcow2 { tables, words: Box::default() }
                }
            };
            opened.push(Opened { layer, kind });
        }
        if opened.is_empty() {
            return Err(unavailable("no_layers"));
        }
        Ok(Self { layers: opened, clusters: Clusters::default(), has_device })
    }

    /// Of each layer, see [`LayerFile::opened`].
    pub(crate) fn opened(&self) -> Vec<LayerStamp> {
        self.layers.iter().map(|opened| opened.layer.opened().clone()).collect()
    }

    fn read(&self, offset: u64, buffer: &mut [u8], copies: Copies) -> io::Result<()> {
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > self.len()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        // Every turn reads at least a byte.
        while done < buffer.len() {
            done += self.read_piece(offset + done as u64, &mut buffer[done..], copies)?;
        }
        Ok(())
    }

    /// Reads the beginning of a buffer, as far as it lies together; gives how much that was.
    fn read_piece(&self, offset: u64, buffer: &mut [u8], copies: Copies) -> io::Result<usize> {
        let mut count = buffer.len() as u64;
        for (index, Opened { layer, kind }) in self.layers.iter().enumerate() {
            // What a layer is too short for reads as zeros, whatever lies below it.
            let Some(left) = self.layers[index].disk_bytes().checked_sub(offset).filter(|left| *left > 0) else {
                break;
            };
            count = count.min(left);
            let file = &layer.file;
            let Kind::Qcow2 { tables, words } = kind else {
                read_padded(file, offset, &mut buffer[..count as usize])?;
                return Ok(count as usize);
            };
            let found = tables.find(words, file, offset, copies)?;
            let within = tables.within(offset);
            if let Found::Plain(place) = found {
                let place = place + within;
                let count = tables.run(words, file, (offset, place), count, copies) as usize;
                read_padded(file, place, &mut buffer[..count])?;
                return Ok(count);
            }
            count = count.min(tables.left(offset));
            match found {
                Found::Compressed { place, byte_count } => {
                    let read = || compressed::read(file, place, byte_count, 1 << tables.cluster_bits);
                    let (count, within) = (count as usize, within as usize);
                    let target = &mut buffer[..count];
                    match copies {
                        Copies::Held => {
                            let cluster = self.clusters.get((index, offset - within as u64), read)?;
                            target.copy_from_slice(&cluster[within..within + count]);
                        }
                        Copies::Fresh => target.copy_from_slice(&read()?[within..within + count]),
                    }
                    return Ok(count);
                }
                Found::Zeros => break,
                Found::Below | Found::Plain(_) => (),
            }
        }
        buffer[..count as usize].fill(0);
        Ok(count as usize)
    }
}

fn check_header(file: &File, path: &Path, has_backing: bool) -> Result<Tables, OpenError> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header[..72], 0).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            OpenError::Corrupt { what: format!("qcow2 layer {}: too short", path.display()) }
        }
        _ => OpenError::Io { path: path.to_owned(), source: error },
    })?;
    // A header of the second version is shorter, and so may be its file.
    let _ = file.read_exact_at(&mut header[72..], 72);
    judge(&header, has_backing).map_err(|fault| match fault {
        Fault::Unavailable(what) => unavailable(what),
        Fault::Corrupt(what) => OpenError::Corrupt { what: format!("qcow2 layer {}: {what}", path.display()) },
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Unavailable(&'static str),
    Corrupt(&'static str),
}

fn judge(header: &[u8; HEADER_BYTES], has_backing: bool) -> Result<Tables, Fault> {
    let word = |at: usize| header[at..at + 4].iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
    let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
    if header[..4] != *b"QFI\xFB" {
        return Err(Fault::Corrupt("magic"));
    }
    let features = match word(4) {
        2 => 0,
        3 => long(72),
        _ => return Err(Fault::Unavailable("qcow2_version")),
    };
    let named = [
        (incompatible::CORRUPT, "qcow2_corrupt"),
        (incompatible::DATA_FILE, "qcow2_data_file"),
        (incompatible::COMPRESSION, "qcow2_compression_type"),
        (incompatible::EXTENDED_L2, "qcow2_extended_l2"),
    ];
    if let Some((_, name)) = named.iter().find(|(bit, _)| features & bit != 0) {
        return Err(Fault::Unavailable(name));
    }
    if features & !incompatible::DIRTY != 0 {
        return Err(Fault::Unavailable("qcow2_feature"));
    }
    if word(32) != 0 {
        return Err(Fault::Unavailable("qcow2_encrypted"));
    }
    match (long(8) != 0, has_backing) {
        (true, false) => return Err(Fault::Unavailable("qcow2_backing_not_in_record")),
        (false, true) => return Err(Fault::Unavailable("qcow2_backing_not_in_image")),
        _ => (),
    }
    if !(9..=21).contains(&word(20)) {
        return Err(Fault::Corrupt("cluster size"));
    }
    let (cluster_bits, entry_count) = (word(20), u64::from(word(36)));
    let (disk_bytes, place) = (long(24), long(40));
    // Each entry of the first level stands for a table of one cluster.
    let entry_disk_bytes = 1 << (2 * cluster_bits - 3);
    if entry_count * 8 > TABLE_BYTES_MAX || disk_bytes.div_ceil(entry_disk_bytes) > entry_count {
        return Err(Fault::Corrupt("table size"));
    }
    if place % (1 << cluster_bits) != 0 || place > i64::MAX as u64 - TABLE_BYTES_MAX {
        return Err(Fault::Corrupt("table place"));
    }
    Ok(Tables { cluster_bits, place, entry_count, disk_bytes, version: word(4) })
}

impl BlockSource for Chain {
    fn len(&self) -> u64 {
        self.layers.first().map_or(0, Opened::disk_bytes)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read(offset, buffer, Copies::Held)
    }

    fn read_layers_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read(offset, buffer, Copies::Fresh)
    }

    fn held_bytes(&self) -> usize {
        let words = self.layers.iter().map(|opened| match &opened.kind {
            Kind::Raw => 0,
            Kind::Qcow2 { words, .. } => words.held_bytes(),
        });
        self.clusters.held_bytes() + words.sum::<usize>()
    }

    fn forget(&self) {
        self.clusters.forget();
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        self.layers.iter().map(|opened| opened.layer.stamp()).collect()
    }

    fn stamp_tells(&self) -> bool {
        !self.has_device
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut [u8; HEADER_BYTES]), has_backing: bool, expect: Result<(), Fault>) {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(b"QFI\xFB\0\0\0\x03");
        header[23] = 16;
        change(&mut header);
        assert_eq!(judge(&header, has_backing).map(drop), expect);
    }

    #[test]
    fn headers_that_are_refused() {
        check(|_| (), false, Ok(()));
        check(|header| header[79] = 1, false, Ok(()));
        check(|header| header[79] = 8, false, Err(Fault::Unavailable("qcow2_compression_type")));
        check(|header| header[79] = 16, false, Err(Fault::Unavailable("qcow2_extended_l2")));
        check(|header| header[0] = 0, false, Err(Fault::Corrupt("magic")));
        check(|header| header[7] = 4, false, Err(Fault::Unavailable("qcow2_version")));
        check(|header| header[79] = 2, false, Err(Fault::Unavailable("qcow2_corrupt")));
        check(|header| header[79] = 4, false, Err(Fault::Unavailable("qcow2_data_file")));
        check(|header| header[72] = 1, false, Err(Fault::Unavailable("qcow2_feature")));
        check(|header| header[35] = 1, false, Err(Fault::Unavailable("qcow2_encrypted")));
        check(|header| header[15] = 104, false, Err(Fault::Unavailable("qcow2_backing_not_in_record")));
        check(|_| (), true, Err(Fault::Unavailable("qcow2_backing_not_in_image")));
        check(|header| header[15] = 104, true, Ok(()));
        check(|header| header[23] = 22, false, Err(Fault::Corrupt("cluster size")));
        check(|header| header[36] = 1, false, Err(Fault::Corrupt("table size")));
        // A megabyte and no table; one for 512 MiB, and a byte more.
        check(|header| header[29] = 16, false, Err(Fault::Corrupt("table size")));
        let disk = |header: &mut [u8; HEADER_BYTES], last| (header[28], header[31], header[39]) = (32, last, 1);
        check(|header| disk(header, 0), false, Ok(()));
        check(|header| disk(header, 1), false, Err(Fault::Corrupt("table size")));
        check(|header| header[46] = 2, false, Err(Fault::Corrupt("table place")));
        check(|header| header[40] = 0x80, false, Err(Fault::Corrupt("table place")));
        // In the second version there are no features yet.
        check(
            |header| {
                header[7] = 2;
                header[79] = 4;
            },
            false,
            Ok(()),
        );
    }

    /// What QEMU makes of an image, or nothing where it cannot read it; an error where there is no QEMU.
    fn of_qemu(image: &Path, flat: &Path) -> Result<Option<Vec<u8>>, String> {
        let arguments = ["convert", "-f", "qcow2", "-O", "raw"].map(std::ffi::OsStr::new);
        let mut command = std::process::Command::new("qemu-img");
        let output =
            command.args(arguments).arg(image).arg(flat).output().map_err(|error| format!("qemu-img: {error}"))?;
        Ok(output.status.success().then(|| std::fs::read(flat).unwrap()))
    }

    #[test]
    fn compressed_clusters_are_what_qemu_makes_of_them() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let mut state = 1_u64;
        let mut next = move |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let content: Vec<u8> =
            (0..300_000_usize).map(|at| if at % 5_000 < 900 { next(256) as u8 } else { (at / 40) as u8 }).collect();
        std::fs::write(path("flat"), &content[..299_520]).unwrap();
        let (mut read, mut refused) = (0, 0);
        for cluster in ["cluster_size=4k", "cluster_size=64k"] {
            let mut command = std::process::Command::new("qemu-img");
            let command = command.args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", cluster]);
            match command.arg(path("flat")).arg(path("image")).output() {
                Ok(output) => assert!(output.status.success(), "{output:?}"),
                Err(error) => return eprintln!("skipped: qemu-img: {error}"),
            }
            let layers = [Layer { path: path("image"), format: Format::Qcow2 }];
            let good = std::fs::read(path("image")).unwrap();
            let chain = Chain::open(&layers).unwrap();
            let Kind::Qcow2 { tables, words } = &chain.layers[0].kind else { panic!("it is none") };
            let size = 1_u64 << tables.cluster_bits;
            let found = (0..chain.len())
                .step_by(size as usize)
                .map(|at| tables.find(words, &chain.layers[0].layer.file, at, Copies::Held).unwrap());
            let streams: Vec<(u64, usize)> = found
                .filter_map(|found| match found {
                    Found::Compressed { place, byte_count } => Some((place, byte_count)),
                    _ => None,
                })
                .collect();
            assert!(streams.len() > 3, "{cluster}: {streams:?}");
            for round in 0..60 {
                let mut bytes = good.clone();
                for _ in 0..round.min(3) {
                    let (place, byte_count) = streams[next(streams.len())];
                    // Most of what a stream takes is at its beginning.
                    let near = 1 + next(byte_count);
                    let at = place as usize + next(near);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << next(8);
                    }
                }
                std::fs::write(path("image"), bytes).unwrap();
                let expect = of_qemu(&path("image"), &path("theirs")).unwrap();
                let chain = Chain::open(&layers).unwrap();
                let mut own = vec![0xEE; chain.len() as usize];
                // In pieces, each of which may begin and end inside a cluster.
                let (mut at, mut result) = (0, Ok(()));
                while at < own.len() && result.is_ok() {
                    let end = own.len().min(at + 1 + next(30_000));
                    result = chain.read_at(at as u64, &mut own[at..end]);
                    at = end;
                }
                match (result, expect) {
                    (Ok(()), Some(expect)) => {
                        assert!(own == expect, "{cluster}, round {round}: other bytes");
                        read += 1;
                    }
                    (Err(error), None) => {
                        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{cluster}, round {round}: {error}");
                        refused += 1;
                    }
                    (own, expect) => panic!("{cluster}, round {round}: {own:?}, QEMU reads: {}", expect.is_some()),
                }
            }
        }
        assert!(read > 10 && refused > 10, "{read} were read and {refused} refused");
    }
}
