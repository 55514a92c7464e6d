//! A small tree that holds one of everything that a reader can trip over.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{PermissionsExt as _, symlink},
    },
    path::Path,
};

use nix::sys::{
    stat::{Mode, UtimensatFlags, utimensat},
    time::TimeSpec,
};

/// Files in the directory `/many`, enough that ext4 hashes it.
pub const MANY_COUNT: usize = 2_000;

/// Fills `root`, which is empty. Every time is set to a whole second, which is all that some makers of images keep.
///
/// # Panics
/// Where the file system refuses.
pub fn fill(root: &Path) {
    let write = |path: &str, content: &[u8]| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a file has a parent")).expect("its parent is made");
        fs::write(path, content).expect("a file is written");
    };
    write("empty", b"");
    write("hello.txt", b"hello\n");
    write("no-final-newline", b"one\ntwo");
    write("crlf.txt", b"foo\r\nbar TODO\r\nbaz\rqux\r\n");
    write("bom.txt", b"\xef\xbb\xbffoo TODO\n");
    write("utf16.txt", &"TODO".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    write("latin1.txt", b"caf\xe9 TODO\n");
    write("accent.txt", "\u{e9} TODO\n".as_bytes());
    write("binary.bin", &[&[b'x'; 8_191][..], b"\0TODO\n"].concat());
    write("late-nul.bin", &[&[b'x'; 8_192][..], b"\0 TODO\n"].concat());
    write("long-line.txt", &[&b"TODO "[..], &[b'y'; 649_000], b"\nafter\n"].concat());
    write("long-first.txt", &[&[b'z'; 70 << 10][..], b"\nTODO on two\n"].concat());
    write("wide.bin", &(0..300_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    write("src/app.py", b"import os\n# TODO first\ndef main_test():\n    pass  # TODO second TODO\n");
    write("src/x/y.ts", b"const AB_1234 = 1; // TODO\n");
    write("src.d/z.py", b"# TODO sorts before src/\n");
    write("other/src/x.ts", b"// TODO elsewhere\n");
    write("build", b"TODO a file named build\n");
    write("target/build/out.txt", b"TODO in a directory named build\n");
    write("README.md", b"# TODO\n");
    write("run.sh", b"#!/bin/sh\n# TODO\n");
    write(".env", b"TODO=1\n");
    write(".github/workflows/ci.yml", b"# TODO\n");
    write(".gitignore", b"scripts/*\n");
    write("scripts/deploy", b"# TODO\n");
    write(".git/config", b"# TODO in git\n");
    write("node_modules/m/index.js", b"// TODO in a module\n");
    write("checkout/proc/version", b"TODO a checkout's own proc\n");
    write("deep/1/2/3/4/5/6/7/8/leaf", b"TODO\n");
    write("context.txt", b"1\n2\n3 TODO\n4\n5 TODO\n6\n7\n");
    for number in 0..MANY_COUNT {
        write(&format!("many/file-{number:05}.txt"), format!("{number}\n").as_bytes());
    }
    fs::write(root.join(OsStr::from_bytes(b"not-utf8-\xff.txt")), b"TODO\n").expect("a name of any bytes");
    fs::write(root.join("n".repeat(255)), b"TODO\n").expect("the longest name");
    fs::File::create(root.join("sparse")).and_then(|file| file.set_len(5 << 20)).expect("a sparse file");
    fs::set_permissions(root.join("run.sh"), fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).expect("a mode");
    fs::set_permissions(root.join("src"), fs::Permissions::from_mode(0o2755)).expect("a mode");
    fs::set_permissions(root.join(".env"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::hard_link(root.join("hello.txt"), root.join("hello-again.txt")).expect("a hard link");
    for (target, name) in [
        ("src/app.py", "link-to-file"),
        ("src", "link-to-directory"),
        ("/src/x", "link-absolute"),
        ("../../../../etc", "link-escaping"),
        ("nowhere", "link-dangling"),
        ("link-loop-b", "link-loop-a"),
        ("link-loop-a", "link-loop-b"),
        ("/", "link-to-root"),
    ] {
        symlink(target, root.join(name)).expect("a symbolic link");
    }
    symlink(Path::new(&"t".repeat(200)), root.join("link-long")).expect("a symbolic link out of the inode");
    nix::unistd::mkfifo(&root.join("fifo"), Mode::from_bits_truncate(0o644)).expect("a fifo");
    set_times(root);
}

/// Sets every time under `root` to a whole second, children first.
fn set_times(root: &Path) {
    let second = TimeSpec::new(1_700_000_000, 0);
    if root.symlink_metadata().expect("it is there").is_dir() {
        for entry in fs::read_dir(root).expect("a directory lists") {
            set_times(&entry.expect("an entry").path());
        }
    }
    utimensat(nix::fcntl::AT_FDCWD, root, &second, &second, UtimensatFlags::NoFollowSymlink).expect("a time is set");
}
