//! Where a disk's bytes come from: partitions, block devices, qcow2 chains, and layers that move.

use std::{fs, path::Path};

use dormouse_disk::{DiskLimits, DiskSpec, Format, Layer, OpenError, Partition, Unsealed, Volume, probe};
use dormouse_files::tree::{Tree, TreeError};

use crate::{
    compare::{Picture, assert_same, of_reader, open},
    image::{Image, content, run, spec_of},
    matrix::Row,
};

fn picture(spec: &DiskSpec) -> Picture {
    match of_reader(&open(spec)) {
        Ok(picture) => picture,
        Err((path, error)) => panic!("/{}: {error}", path.escape_ascii()),
    }
}

fn refusal(spec: &DiskSpec) -> String {
    match Volume::open(spec, Unsealed::Crash, &DiskLimits::default()) {
        Ok(_) => "it opens".to_owned(),
        Err(error) => error.to_string(),
    }
}

fn chain(layers: &[(&Path, Format)]) -> DiskSpec {
    let layers = layers.iter().map(|(path, format)| Layer { path: path.to_path_buf(), format: *format });
    DiskSpec { layers: layers.collect(), partition: None }
}

fn qemu(arguments: &[&str]) -> Result<String, String> {
    run("qemu-img", arguments)
}

/// Images whose bytes a guest can choose, of which the content is the same.
pub fn rows() -> Vec<Row> {
    vec![Row::new("sources", "a qcow2 header in the first sector of a raw disk", || {
        let content = content();
        let image = Image::make("-t ext4 -b 4096", "32M", Some(content.path()));
        let mut header = [0; 512];
        header[..8].copy_from_slice(b"QFI\xFB\0\0\0\x03");
        header[15] = 104;
        header[20..24].copy_from_slice(&16_u32.to_be_bytes());
        image.poke(0, &header);
        Some(image)
    })]
}

#[test]
fn a_partition_of_a_disk() {
    let content = content();
    let image = Image::make("-t ext4 -b 4096", "32M", Some(content.path()));
    let expect = picture(&image.spec());
    let place = tempfile::tempdir().unwrap();
    let disk = place.path().join("disk");
    // An MBR with one entry from sector 2,048 on; GPTs are made in the unit tests of the parser.
    let mut bytes = vec![0; 2048 * 512];
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 0, 1, 0]);
    bytes.extend(fs::read(&image.path).unwrap());
    fs::write(&disk, bytes).unwrap();
    let mut spec = spec_of(&disk);
    assert!(refusal(&spec).contains("unknown_file_system"));
    spec.partition = Some(Partition::Number(1));
    assert_same(&picture(&spec), &expect);
    assert_eq!(open(&spec).superblock_sha256(), open(&image.spec()).superblock_sha256());
}

#[test]
fn a_block_device() {
    let content = content();
    let image = Image::make("-t ext4 -b 4096", "32M", Some(content.path()));
    let expect = picture(&image.spec());
    let device = match run("losetup", &["-f".as_ref(), "--show".as_ref(), image.path.as_os_str()]) {
        Ok(said) => said.trim().to_owned(),
        Err(said) => return eprintln!("skipped: {said}"),
    };
    let seen = std::panic::catch_unwind(|| {
        let spec = spec_of(Path::new(&device));
        let volume = open(&spec);
        assert_eq!(volume.stamp()[0].size_bytes, 32 << 20);
        assert!(!volume.changed());
        let seen = picture(&spec);
        // A writer of a device need not move a stamp, but a resume sets the flag in the superblock.
        let file = fs::OpenOptions::new().write(true).open(&device).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xFF], 1024 + 0x3A).unwrap();
        assert!(volume.changed());
        seen
    });
    run("losetup", &["-d", &device]).unwrap();
    assert_same(&seen.unwrap(), &expect);
}

#[test]
fn a_chain_of_three_layers() {
    let content = content();
    let image = Image::make("-t ext4 -b 4096", "64M", Some(content.path()));
    let place = image.path.parent().unwrap();
    let [base, middle, top, flat] = ["base.qcow2", "middle.qcow2", "top.qcow2", "flat"].map(|name| place.join(name));
    let text = |path: &Path| path.display().to_string();
    if let Err(said) = qemu(&["convert", "-c", "-O", "qcow2", &text(&image.path), &text(&base)]) {
        return eprintln!("skipped: {said}");
    }
    let create = |options: &str, backing: &Path, path: &Path| {
        qemu(&["create", "-q", "-f", "qcow2", "-o", options, "-F", "qcow2", "-b", &text(backing), &text(path)])
            .unwrap();
    };
    let write = |path: &Path, command: &str| run("qemu-io", &["-f", "qcow2", "-c", command, &text(path)]).unwrap();
    for options in ["cluster_size=4k", "compat=0.10", "lazy_refcounts=on"] {
        create(options, &base, &middle);
        // Journal and data that the file system does not use: what matters is that the bytes are those of qemu-img.
        write(&middle, "write -P 7 40M 300k");
        create("cluster_size=64k", &middle, &top);
        write(&top, "write -z 41M 64k");
        write(&top, "write -P 9 42000000 5");
        qemu(&["convert", "-O", "raw", &text(&top), &text(&flat)]).unwrap();
        let spec = chain(&[(&top, Format::Qcow2), (&middle, Format::Qcow2), (&base, Format::Qcow2)]);
        assert_same(&picture(&spec), &picture(&spec_of(&flat)));
        assert_eq!(open(&spec).stamp().len(), 3);
        // A chain that is not the record's is refused, whichever way round.
        let short = chain(&[(&top, Format::Qcow2), (&middle, Format::Qcow2)]);
        assert!(refusal(&short).contains("qcow2_backing_not_in_record"), "{}", refusal(&short));
        let long = chain(&[(&base, Format::Qcow2), (&middle, Format::Qcow2), (&base, Format::Qcow2)]);
        assert!(refusal(&long).contains("qcow2_backing_not_in_image"), "{}", refusal(&long));
        for path in [&middle, &top, &flat] {
            fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn a_raw_base_that_is_shorter() {
    let content = content();
    let image = Image::make("-t ext4 -b 4096", "32M", Some(content.path()));
    let top = image.path.with_file_name("top.qcow2");
    let text = |path: &Path| path.display().to_string();
    let made = qemu(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &text(&image.path), &text(&top), "48M"]);
    if let Err(said) = made {
        return eprintln!("skipped: {said}");
    }
    let spec = chain(&[(&top, Format::Qcow2), (&image.path, Format::Raw)]);
    assert_same(&picture(&spec), &picture(&image.spec()));
}

#[test]
fn no_name_inside_an_image_is_followed() {
    let place = tempfile::tempdir().unwrap();
    let image = place.path().join("image.qcow2");
    let text = image.display().to_string();
    if let Err(said) = qemu(&["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd", &text, "32M"]) {
        return eprintln!("skipped: {said}");
    }
    assert!(refusal(&chain(&[(&image, Format::Qcow2)])).contains("qcow2_backing_not_in_record"));
    // The record is the chain, and it ends.
    let twice = chain(&[(&image, Format::Qcow2), (&image, Format::Qcow2)]);
    assert!(refusal(&twice).contains("qcow2_backing_not_in_record"));
    let many: Vec<_> = (0..17).map(|_| (image.as_path(), Format::Qcow2)).collect();
    assert!(refusal(&chain(&many)).contains("layer_count"));
    qemu(&["create", "-q", "-f", "qcow2", "-o", "extended_l2=on", &text, "32M"]).unwrap();
    assert!(refusal(&chain(&[(&image, Format::Qcow2)])).contains("qcow2_extended_l2"));
    qemu(&["create", "-q", "-f", "qcow2", "-o", "compression_type=zstd", &text, "32M"]).unwrap();
    assert!(refusal(&chain(&[(&image, Format::Qcow2)])).contains("qcow2_compression_type"));
    let data = place.path().join("data");
    let option = format!("data_file={},data_file_raw=on", data.display());
    qemu(&["create", "-q", "-f", "qcow2", "-o", &option, &text, "32M"]).unwrap();
    assert!(refusal(&chain(&[(&image, Format::Qcow2)])).contains("qcow2_data_file"));
}

#[test]
fn the_format_is_the_records() {
    let content = content();
    let image = Image::make("-t ext4 -b 4096", "32M", Some(content.path()));
    let expect = picture(&image.spec());
    // A guest may write what it likes into the first sector of its own disk.
    let header = image.path.with_file_name("header.qcow2");
    if let Err(said) = qemu(&[
        "create",
        "-q",
        "-u",
        "-f",
        "qcow2",
        "-F",
        "raw",
        "-b",
        "/etc/passwd",
        &header.display().to_string(),
        "32M",
    ]) {
        return eprintln!("skipped: {said}");
    }
    image.poke(0, &fs::read(&header).unwrap()[..512]);
    assert_same(&picture(&image.spec()), &expect);
}

#[test]
fn what_is_no_disk() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("disk");
    let missing = Volume::open(&spec_of(&path), Unsealed::Never, &DiskLimits::default());
    assert!(matches!(missing, Err(OpenError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound));
    fs::write(&path, vec![0; 100]).unwrap();
    assert!(refusal(&spec_of(&path)).contains("too short"));
    fs::write(&path, vec![0; 1 << 20]).unwrap();
    assert!(refusal(&spec_of(&path)).contains("unknown_file_system"));
    let mut other = vec![0; 1 << 20];
    other[..4].copy_from_slice(b"XFSB");
    fs::write(&path, &other).unwrap();
    assert!(refusal(&spec_of(&path)).ends_with("xfs"));
    other[..4].fill(0);
    other[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
    fs::write(&path, &other).unwrap();
    assert!(refusal(&spec_of(&path)).ends_with("btrfs"));
    assert!(refusal(&DiskSpec { layers: Vec::new(), partition: None }).contains("no_layers"));
}

#[test]
fn a_truncated_image_is_refused() {
    let image = Image::make("-t ext4 -b 4096", "32M", None);
    let file = fs::OpenOptions::new().write(true).open(&image.path).unwrap();
    file.set_len((32 << 20) - 4096).unwrap();
    assert!(refusal(&image.spec()).contains("larger than its disk"));
}

#[test]
fn a_disk_that_moves_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), b"content").unwrap();
    let image = Image::make("-t ext4 -b 4096", "32M", Some(place.path()));
    let volume = open(&image.spec());
    assert!(!volume.changed() && volume.verify().is_ok());
    // A chmod and a hard link of the image move the time of the inode's change only.
    fs::hard_link(&image.path, image.path.with_file_name("second")).unwrap();
    assert!(volume.verify().is_ok());
    image.poke(20 << 20, b"x");
    assert!(matches!(volume.verify(), Err(TreeError::Changed)));
    let volume = open(&image.spec());
    fs::rename(image.copy().path, &image.path).unwrap();
    assert!(matches!(volume.verify(), Err(TreeError::Changed)));
    let volume = open(&image.spec());
    fs::remove_file(&image.path).unwrap();
    assert!(matches!(volume.verify(), Err(TreeError::Changed)));
}

#[test]
fn a_probe_says_what_a_seal_asks() {
    let image = Image::make("-t ext4 -b 4096 -U 01234567-89ab-cdef-0123-456789abcdef", "32M", None);
    let limits = DiskLimits::default();
    let said = probe(&image.spec(), &limits).unwrap();
    let volume = open(&image.spec());
    assert_eq!(said.uuid, [1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF]);
    assert_eq!((said.uuid, said.superblock_sha256), (volume.uuid(), volume.superblock_sha256()));
    assert_eq!(said.stamp, volume.stamp());
    assert!(said.has_journal && !said.needs_recovery);
    match image.mount("rw") {
        Err(said) => eprintln!("skipped: {said}"),
        Ok(_mount) => {
            let said = probe(&image.copy().spec(), &limits).unwrap();
            assert!(said.has_journal && said.needs_recovery);
        }
    }
    let without = Image::make("-t ext4 -b 4096 -O ^has_journal", "32M", None);
    assert!(!probe(&without.spec(), &limits).unwrap().has_journal);
}
