//! What happens to a disk while it is read: a machine that wakes, a writer through a map, and QEMU, whose open a reader must
//! not delay.

use std::{
    ops::ControlFlow,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use dormouse_files::{
    Fault,
    budget::Unbounded,
    limits::Limits,
    path::TreePath,
    read::{self, Piece, Range, ReadPlan},
    search::{
        self, Match, SearchPlan,
        globs::GlobSet,
        pattern::{Case, Pattern, Syntax},
    },
    stat::Revisions,
    tree::{Tree, TreeError},
};

use crate::{
    compare::{of_reader, open},
    image::{Image, run},
};

/// Files of lines that all match.
fn lines(count: usize) -> Image {
    let place = tempfile::tempdir().unwrap();
    for index in 0..count {
        std::fs::write(place.path().join(format!("file-{index:03}")), "a line to find\n".repeat(2_000)).unwrap();
    }
    Image::make("-t ext4 -b 4096", "32M", Some(place.path()))
}

/// What a machine that starts does first: it writes to its disk.
fn wake(image: &Image) {
    image.poke(24 << 20, b"awake");
}

fn read_all(image: &Image, on_piece: &mut dyn FnMut(usize)) -> Result<(), Fault> {
    let volume = open(&image.spec());
    let plan = ReadPlan {
        path: TreePath::parse(b"/file-000").unwrap(),
        range: Range::Whole,
        expected_revision: None,
        expected_etag: None,
        include_revision: false,
    };
    let mut count = 0;
    let mut sink = |_: Piece<'_>| {
        on_piece(count);
        count += 1;
        ControlFlow::Continue(())
    };
    read::run(&volume, &plan, Revisions::Never, None, &Limits::default(), &Unbounded, &mut sink).map(drop)
}

#[test]
fn a_machine_that_wakes_between_open_and_read_ends_it() {
    let image = lines(1);
    assert!(read_all(&image, &mut |_| ()).is_ok());
    let volume = open(&image.spec());
    let (file, _) = volume.open(&volume.root().unwrap(), b"file-000").unwrap();
    wake(&image);
    let mut buffer = [0; 100];
    // Bytes may still be read, and they are not believed.
    let _ = volume.read_at(&file, 0, &mut buffer);
    assert!(matches!(volume.verify(), Err(TreeError::Changed)));
    // At the header, and at the first piece of content.
    for at in [0, 1] {
        let image = lines(1);
        let ended = read_all(&image, &mut |piece| {
            if piece == at {
                wake(&image);
            }
        });
        assert!(matches!(ended, Err(Fault::OfflineChanged)), "at piece {at}: {ended:?}");
    }
}

fn search_all(image: &Image, on_match: &mut dyn FnMut(usize)) -> (usize, Result<(), Fault>) {
    let volume = open(&image.spec());
    let limits = Limits { search_thread_count: 2, ..Limits::default() };
    let plan = SearchPlan {
        path: TreePath::root(),
        pattern: Pattern::new("to find", Syntax::Literal, Case::Sensitive, &limits).unwrap(),
        globs: GlobSet::new(&[], &[], &limits).unwrap(),
        context_line_count: 0,
        match_count_max: 1_000_000,
        file_bytes_max: 1 << 20,
        machine_root: false,
    };
    let mut count = 0;
    let ended = search::run(&volume, &plan, &limits, &Unbounded, &mut |_: Match| {
        count += 1;
        on_match(count);
        ControlFlow::Continue(())
    });
    (count, ended.map(drop))
}

#[test]
fn a_machine_that_wakes_in_a_search_ends_it() {
    let image = lines(20);
    let (all, ended) = search_all(&image, &mut |_| ());
    assert!(ended.is_ok() && all == 40_000, "{all}: {ended:?}");
    // In the middle, and with the very last match.
    for at in [all / 2, all] {
        let image = lines(20);
        let (_, ended) = search_all(&image, &mut |count| {
            if count == at {
                wake(&image);
            }
        });
        assert!(matches!(ended, Err(Fault::OfflineChanged)), "at match {at}: {ended:?}");
    }
}

/// A writer through a map moves the time when it first dirties a page.
#[test]
fn a_writer_through_a_map_is_noticed() {
    let image = lines(1);
    let volume = open(&image.spec());
    let program = "import mmap, sys\n\
                   with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as held:\n    held[25 << 20] = 1\n";
    assert!(!volume.changed());
    match Command::new("python3").args(["-c", program]).arg(&image.path).status() {
        Err(error) => eprintln!("skipped: python3: {error}"),
        Ok(status) => {
            assert!(status.success(), "{status}");
            assert!(volume.changed());
        }
    }
}

/// QEMU opens the disk and writes to it while it is read: a reader holds no lock and waits for none.
#[test]
fn a_reader_never_delays_qemus_open() {
    let image = lines(20);
    let path = image.path.display().to_string();
    let write = || run("qemu-io", &["-f", "raw", "-c", "write -P 9 26M 4k", &path]);
    // What must not be done: an open that waits for the disk fails where somebody holds QEMU's byte.
    let held = std::fs::File::open(&image.path).unwrap();
    let mut lock = nix::libc::flock {
        l_type: nix::libc::F_RDLCK as i16,
        l_whence: nix::libc::SEEK_SET as i16,
        l_start: 201,
        l_len: 1,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&held, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).expect("the lock is free");
    match write() {
        Ok(_) => panic!("QEMU takes no notice of its own lock, so this proves nothing"),
        Err(said) if !said.contains("lock") => return eprintln!("skipped: {said}"),
        Err(_) => (),
    }
    lock.l_type = nix::libc::F_UNLCK as i16;
    nix::fcntl::fcntl(&held, nix::fcntl::FcntlArg::F_OFD_SETLK(&lock)).expect("the lock is given back");
    drop(held);

    let volume = open(&image.spec());
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // At least once whole, then on until QEMU is done.
            loop {
                of_reader(&open(&image.spec())).map_err(|(_, error)| error).expect("it is read");
                begun.store(true, Ordering::SeqCst);
                if over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        while !begun.load(Ordering::SeqCst) && !reader.is_finished() {
            std::thread::yield_now();
        }
        let said = write();
        over.store(true, Ordering::SeqCst);
        said.expect("QEMU opens the disk and writes");
    });
    assert!(volume.changed());
}
