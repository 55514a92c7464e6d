//! Reading from a private clone of the image, and what an open disk keeps in memory.

use std::{
    fs, io,
    ops::ControlFlow,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::{Arc, Mutex},
};

use dormouse_disk::{BlockSource, Cloning, DiskLimits, DiskSpec, LayerStamp, Partition, Reading, Unsealed, Volume};
use dormouse_files::{
    meta::FileType,
    tree::{Name, Tree, TreeError},
};

use crate::{
    compare::{assert_same, of_reader, open},
    image::{Image, content, run, spec_of},
};

/// An empty xfs that can clone files, mounted from a file; unmounted when dropped.
struct Reflink {
    place: tempfile::TempDir,
}

impl Reflink {
    /// Says why where there can be none here.
    fn mount() -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        let place = tempfile::tempdir().expect("a temporary folder");
        let (file, root) = (place.path().join("xfs.img"), place.path().join("root"));
        fs::File::create(&file).and_then(|file| file.set_len(512 << 20)).expect("a file of holes");
        fs::create_dir(&root).expect("a folder");
        run("mkfs.xfs", &["-q".as_ref(), "-m".as_ref(), "reflink=1".as_ref(), file.as_os_str()])?;
        run("mount", &["-o".as_ref(), "loop".as_ref(), file.as_os_str(), root.as_os_str()])?;
        Ok(Self { place })
    }

    fn path(&self) -> std::path::PathBuf {
        self.place.path().join("root")
    }
}

impl Drop for Reflink {
    fn drop(&mut self) {
        if let Err(said) = run("umount", &[self.path()]) {
            eprintln!("{said}");
        }
    }
}

fn open_clone(spec: &DiskSpec) -> Volume {
    Volume::open_clone(spec, Unsealed::Never, &DiskLimits::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn digest(path: &Path) -> Vec<u8> {
    use sha2::Digest;
    sha2::Sha256::digest(fs::read(path).unwrap()).to_vec()
}

/// Reads every file by lending where the tree lends, and compares that with a copy. Gives how many bytes were lent.
fn lent_like_copied(volume: &Volume) -> u64 {
    let mut lent_bytes = 0;
    let mut left = vec![volume.root().unwrap()];
    while let Some(directory) = left.pop() {
        let mut names = Vec::new();
        let mut visit = |name: Name<'_>| {
            names.push(name.bytes.to_vec());
            ControlFlow::Continue(())
        };
        volume.names(&directory, &mut visit).unwrap();
        for name in names {
            match volume.stat(&directory, &name).unwrap().kind {
                FileType::Directory => left.push(volume.directory(&directory, &name).unwrap()),
                FileType::Regular => {
                    let (file, meta) = volume.open(&directory, &name).unwrap();
                    let (mut offset, mut copy) = (0, vec![0; 300_000]);
                    while offset < meta.size_bytes {
                        let length = match volume.lend(&file, offset, copy.len()).unwrap() {
                            Some(lent) => {
                                let lent = lent.to_vec();
                                assert_eq!(volume.read_at(&file, offset, &mut copy[..lent.len()]).unwrap(), lent.len());
                                assert!(copy[..lent.len()] == lent, "what is lent differs from what is read");
                                lent_bytes += lent.len() as u64;
                                lent.len()
                            }
                            None => volume.read_at(&file, offset, &mut copy[..4096]).unwrap(),
                        };
                        offset += length as u64;
                    }
                }
                _ => (),
            }
        }
    }
    lent_bytes
}

/// A disk in memory that writes down what it is told will be needed.
struct Told {
    bytes: Vec<u8>,
    is_fresh: bool,
    told: Mutex<Vec<(u64, u64)>>,
}

impl BlockSource for Told {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let held = self.bytes.get(offset as usize..).and_then(|bytes| bytes.get(..buffer.len()));
        buffer.copy_from_slice(held.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn will_need(&self, offset: u64, length: u64) {
        self.told.lock().unwrap().push((offset, length));
    }

    fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        Ok(Vec::new())
    }
}

#[test]
fn what_is_read_ahead_lies_on_the_disk_and_changes_no_answer() {
    let place = tempfile::tempdir().unwrap();
    for index in 0..2_400 {
        let folder = place.path().join(format!("{}", index % 60));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("file-{index}")), index.to_string()).unwrap();
    }
    // The last one has a table of 7 MiB for all its inodes.
    for options in ["-t ext4 -b 4096", "-t ext3 -b 1024", "-t ext4 -b 4096 -N 30000"] {
        let image = Image::make(options, "128M", Some(place.path()));
        let expect = of_reader(&open(&image.spec())).unwrap();
        let told_of = |table_bytes_max, is_fresh, look: &dyn Fn(&Volume)| {
            let bytes = fs::read(&image.path).unwrap();
            let source = Arc::new(Told { bytes, is_fresh, told: Mutex::default() });
            let held: Arc<dyn BlockSource> = source.clone();
            let limits = DiskLimits { table_bytes_max, ..DiskLimits::default() };
            let volume = Volume::from_source(held, Unsealed::Never, &limits);
            look(&volume.unwrap_or_else(|error| panic!("{error}")));
            let told = source.told.lock().unwrap().clone();
            assert!(told.iter().all(|(offset, length)| *length > 0 && offset + length <= source.len()), "{told:?}");
            told
        };
        let told = |is_fresh, look: &dyn Fn(&Volume)| told_of(0, is_fresh, look);
        let all = |volume: &Volume| assert_same(&of_reader(volume).unwrap(), &expect);
        let little = |volume: &Volume| {
            let folder = volume.directory(&volume.root().unwrap(), b"7").unwrap();
            volume.stat(&folder, b"file-7").unwrap();
        };
        let block_bytes = if options.contains("4096") { 4_096 } else { 1_024 };
        let directories = |told: &[(u64, u64)]| told.iter().filter(|(_, length)| *length == block_bytes).count();
        let fresh = told(true, &all);
        assert!(directories(&fresh) >= 30, "{options}: {fresh:?}");
        let known = told(false, &all);
        assert!(directories(&known) == 0 && !known.is_empty(), "{options}: {known:?}");
        assert!(known.iter().map(|(_, length)| length).sum::<u64>() <= 4 << 20, "{options}: {known:?}");
        assert_eq!(told(true, &little), [(0, 8_192)], "{options}");
        assert_eq!(told(false, &little), [], "{options}");
        // Tables that are read at once are told of to nobody; those of ext4 here have 7 and 8 MiB, which is too much for that.
        let (whole, held) = (told_of(16 << 20, true, &all), told_of(16 << 20, false, &all));
        if options.contains("ext3") {
            assert!(whole.len() >= 31 && directories(&whole) == whole.len() - 1, "{options}: {whole:?}");
            assert_eq!(held, [], "{options}");
        } else {
            assert_eq!((directories(&whole), held), (directories(&fresh), known), "{options}");
        }
    }
}

#[test]
fn a_clone_answers_like_the_disk_and_leaves_it_as_it_is() {
    let reflink = match Reflink::mount() {
        Ok(reflink) => reflink,
        Err(said) => return eprintln!("skipped: {said}"),
    };
    let content = content();
    let image = Image::make("-t ext4 -b 4096 -O inline_data", "64M", Some(content.path()));
    image.rehash();
    let path = reflink.path().join("disk.img");
    fs::copy(&image.path, &path).unwrap();
    let (before, meta) = (digest(&path), fs::metadata(&path).unwrap());

    let clone = open_clone(&spec_of(&path));
    assert!(matches!(clone.cloning(), Cloning::Done), "{:?}", clone.cloning());
    let expect = of_reader(&open(&spec_of(&path))).unwrap();
    assert_same(&of_reader(&clone).unwrap(), &expect);
    assert!(lent_like_copied(&clone) > 1_500_000);
    let limits = DiskLimits { ahead_bytes_max: 0, ..DiskLimits::default() };
    let unmapped = Volume::open(&spec_of(&path), Unsealed::Never, &limits).unwrap();
    assert_eq!(lent_like_copied(&unmapped), 0, "what is not a clone is not mapped");
    assert_eq!(digest(&path), before);
    let now = fs::metadata(&path).unwrap();
    assert_eq!((now.mtime_nsec(), now.ctime_nsec()), (meta.mtime_nsec(), meta.ctime_nsec()));
    assert_eq!(fs::read_dir(reflink.path()).unwrap().count(), 1, "a clone has no name");

    // The clone does not move with the disk, and says that the disk moved.
    assert!(!clone.changed());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(!clone.changed(), "a chmod is no writer");
    fs::write(&path, vec![0xAB; 64 << 20]).unwrap();
    assert!(matches!(clone.verify(), Err(TreeError::Changed)));
    assert_same(&of_reader(&clone).unwrap(), &expect);
}

#[test]
fn small_files_that_lie_in_a_row_are_read_together() {
    let place = tempfile::tempdir().unwrap();
    crate::image::fill(place.path(), 400);
    let large: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for index in 0..400_usize {
        let begin = index * 2_000;
        fs::write(place.path().join(format!("row-{index:03}")), &large[begin..begin + 1_000 + index * 50]).unwrap();
    }
    fs::write(place.path().join("row-400"), &large).unwrap();
    for options in ["-t ext4 -b 4096", "-t ext3 -b 1024"] {
        let image = Image::make(options, "64M", Some(place.path()));
        let limits = |ahead_bytes_max| DiskLimits { ahead_bytes_max, ..DiskLimits::default() };
        for ahead_bytes_max in [0, 320 << 10, 5 << 20] {
            let limits = limits(ahead_bytes_max);
            let volume = Arc::new(Volume::open(&image.spec(), Unsealed::Never, &limits).unwrap());
            let readings = [Reading::of(Arc::clone(&volume)), Reading::of(Arc::clone(&volume))];
            let lent_bytes = lent_like_copied(&volume);
            let expect = if ahead_bytes_max < 5 << 20 { ahead_bytes_max as u64 / 5 } else { 2_000_000 };
            assert!(lent_bytes >= expect && (lent_bytes == 0) == (expect == 0), "{options}: {lent_bytes} of {expect}");
            let held = volume.held_bytes();
            volume.verify().unwrap();
            assert_eq!(volume.held_bytes(), held, "a check in between takes nothing");
            let [first, last] = readings;
            drop(first);
            assert_eq!(volume.held_bytes(), held, "one still reads");
            drop(last);
            let content = held - volume.held_bytes();
            assert!(content <= ahead_bytes_max && (content == 0) == (ahead_bytes_max == 0), "{options}: {content}");
            assert_same(&of_reader(&volume).unwrap(), &of_reader(&open(&image.spec())).unwrap());
        }
    }
}

/// A disk of which one block cannot be read.
struct Broken {
    bytes: Vec<u8>,
    place: u64,
}

impl BlockSource for Broken {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if (offset..offset + buffer.len() as u64).contains(&self.place) {
            return Err(io::Error::other("a broken block"));
        }
        let held = self.bytes.get(offset as usize..).and_then(|bytes| bytes.get(..buffer.len()));
        buffer.copy_from_slice(held.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn stamp(&self) -> io::Result<Vec<LayerStamp>> {
        Ok(Vec::new())
    }
}

#[test]
fn a_block_that_cannot_be_read_takes_no_other_file_with_it() {
    let place = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..200).map(|index| format!("row-{index:03}")).collect();
    for name in &names {
        fs::write(place.path().join(name), name.repeat(1_000)).unwrap();
    }
    let image = Image::make("-t ext4 -b 4096", "32M", Some(place.path()));
    let bytes = fs::read(&image.path).unwrap();
    let mark = "row-100".repeat(10);
    let at = bytes.windows(mark.len()).position(|window| window == mark.as_bytes()).unwrap();
    let source = Arc::new(Broken { bytes, place: at as u64 });
    let volume = Volume::from_source(source, Unsealed::Never, &DiskLimits::default()).unwrap();
    let root = volume.root().unwrap();
    let mut lent_count = 0;
    for name in &names {
        let (file, meta) = volume.open(&root, name.as_bytes()).unwrap();
        let length = meta.size_bytes as usize;
        let mut copy = vec![0; length];
        let read = match volume.lend(&file, 0, length).unwrap() {
            Some(lent) => {
                lent_count += 1;
                Ok(lent.to_vec())
            }
            None => volume.read_at(&file, 0, &mut copy).map(|_| copy),
        };
        match read {
            Ok(bytes) => assert!(bytes == name.repeat(1_000).as_bytes() && name != "row-100", "{name}"),
            Err(error) => assert!(matches!(error, TreeError::Io(_)) && name == "row-100", "{name}: {error}"),
        }
    }
    assert!(lent_count > 100, "{lent_count}");
}

#[test]
fn the_superblock_is_asked_of_the_disk_and_not_of_its_clone() {
    let reflink = match Reflink::mount() {
        Ok(reflink) => reflink,
        Err(said) => return eprintln!("skipped: {said}"),
    };
    let image = Image::make("-t ext4 -b 4096", "32M", None);
    // With a partition in front, so that the way through a part of a disk is asked too.
    let path = reflink.path().join("disk.img");
    let mut bytes = vec![0; 2048 * 512];
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 0, 1, 0]);
    bytes.extend(fs::read(&image.path).unwrap());
    fs::write(&path, bytes).unwrap();
    let spec = DiskSpec { partition: Some(Partition::Number(1)), ..spec_of(&path) };
    let clone = open_clone(&spec);
    assert!(matches!(clone.cloning(), Cloning::Done), "{:?}", clone.cloning());
    assert!(!clone.changed());
    // A writer that sets the time back as it was moves the time of the inode's change, so the superblock decides.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xFF], 2048 * 512 + 1024 + 0x3A).unwrap();
    file.set_modified(modified).unwrap();
    assert!(clone.changed());
}

#[test]
fn a_file_system_that_cannot_clone_is_read_all_the_same() {
    let content = content();
    let image = Image::make("-t ext4 -b 1024", "32M", Some(content.path()));
    let volume = open_clone(&image.spec());
    match volume.cloning() {
        // The temporary folder may well lie on a file system that can.
        Cloning::Done => (),
        Cloning::Refused(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        Cloning::None => panic!("it was asked for"),
    }
    assert_same(&of_reader(&volume).unwrap(), &of_reader(&open(&image.spec())).unwrap());
    assert!(matches!(open(&image.spec()).cloning(), Cloning::None));
}

#[test]
fn what_is_kept_in_memory_has_a_bound_and_changes_no_answer() {
    let place = tempfile::tempdir().unwrap();
    crate::image::fill(place.path(), 3_000);
    let image = Image::make("-t ext4 -b 1024", "64M", Some(place.path()));
    image.rehash();
    let expect = of_reader(&open(&image.spec())).unwrap();
    let limits = DiskLimits {
        cache_bytes_max: 128 << 10,
        inode_bytes_max: 16 << 10,
        name_bytes_max: 64 << 10,
        table_bytes_max: 0,
        ..DiskLimits::default()
    };
    let bound = limits.cache_bytes_max + limits.inode_bytes_max + limits.name_bytes_max;
    let volume = Arc::new(Volume::open(&image.spec(), Unsealed::Never, &limits).unwrap());
    for _ in 0..2 {
        assert_same(&of_reader(&volume).unwrap(), &expect);
        assert!(volume.held_bytes() <= bound + limits.ahead_bytes_max, "{}", volume.held_bytes());
        drop(Reading::of(Arc::clone(&volume)));
        assert!(volume.held_bytes() <= bound, "{} of {bound}", volume.held_bytes());
    }
    // Names that are not there are kept too, and no more of them than the bound allows.
    let root = volume.root().unwrap();
    for index in 0..5_000 {
        let name = format!("nothing-{index}-{}", "y".repeat(index % 200));
        for _ in 0..2 {
            assert!(matches!(volume.stat(&root, name.as_bytes()), Err(TreeError::NotFound)));
        }
    }
    assert!(volume.held_bytes() <= bound, "{} of {bound}", volume.held_bytes());
    assert!(volume.held_bytes() > bound / 2, "{} of {bound}", volume.held_bytes());
}
