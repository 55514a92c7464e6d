//! Images made at test time, and copies of them mounted by the kernel.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use dormouse_disk::{DiskSpec, Format, Layer};
use tempfile::TempDir;

/// Runs a program to its end; its output is shown only if it fails.
pub fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Result<String, String> {
    let output = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .env("DEBUGFS_PAGER", "cat")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() { Ok(said) } else { Err(format!("{program}: {}: {said}", output.status)) }
}

/// What mke2fs makes where nothing else is said: as e2fsprogs 1.47.0 has it.
const DEFAULTS: &str = "\
[defaults]
    base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
    default_mntopts = acl,user_xattr
    enable_periodic_fsck = 0
    blocksize = 4096
    inode_size = 256
    inode_ratio = 16384

[fs_types]
    ext3 = {
        features = has_journal
    }
    ext4 = {
        features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
    }
    small = {
        blocksize = 1024
        inode_ratio = 4096
    }
    floppy = {
        blocksize = 1024
        inode_ratio = 8192
    }
";

/// An image in a folder of its own.
pub struct Image {
    pub path: PathBuf,
    place: TempDir,
}

impl Image {
    /// Makes a file system of `size` (as mke2fs takes it) with `options`, filled from `content` where there is one.
    pub fn make(options: &str, size: &str, content: Option<&Path>) -> Self {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = place.path().join("disk.img");
        let mut arguments: Vec<String> = ["-q", "-F"].map(str::to_owned).to_vec();
        arguments.extend(options.split_whitespace().map(str::to_owned));
        if let Some(content) = content {
            arguments.extend(["-d".to_owned(), content.display().to_string()]);
        }
        arguments.extend([path.display().to_string(), size.to_owned()]);
        // The options of a row are told against these defaults, which differ from one distribution to the next.
        let defaults = place.path().join("mke2fs.conf");
        fs::write(&defaults, DEFAULTS).expect("the defaults are written");
        let config = format!("MKE2FS_CONFIG={}", defaults.display());
        arguments.splice(0..0, [config, "mke2fs".to_owned()]);
        run("env", &arguments).expect("mke2fs makes the image");
        Self { path, place }
    }

    /// The record of this disk.
    pub fn spec(&self) -> DiskSpec {
        spec_of(&self.path)
    }

    /// Changes the image with debugfs, one request a line.
    pub fn debugfs(&self, requests: &str) {
        let script = self.place.path().join("requests");
        fs::write(&script, requests).expect("the requests are written");
        let said = run("debugfs", &["-w", "-f", &script.display().to_string(), &self.path.display().to_string()]);
        said.expect("debugfs runs");
    }

    /// Checks the image and hashes its directories.
    pub fn rehash(&self) {
        let path = self.path.display().to_string();
        let status = Command::new("e2fsck").args(["-fyD", &path]).output().expect("e2fsck runs").status;
        // 1: it changed what it was told to change.
        assert!(status.code().is_some_and(|code| code <= 1), "e2fsck -fyD: {status}");
    }

    /// A copy, holes kept: of one moment, since it is taken again where the image was written meanwhile.
    pub fn copy(&self) -> Self {
        let place = tempfile::tempdir().expect("a temporary folder");
        let path = place.path().join("disk.img");
        let written = || {
            let meta = fs::metadata(&self.path).expect("the image is there");
            (meta.mtime(), meta.mtime_nsec())
        };
        for _ in 0..100 {
            let before = written();
            run("cp", &["--sparse=always".as_ref(), self.path.as_os_str(), path.as_os_str()]).expect("it is copied");
            if written() == before {
                return Self { path, place };
            }
        }
        panic!("the image is written all the time");
    }

    /// The image with what the kernel writes to it; nothing where the kernel does not mount it here.
    pub fn filled(self, fill: impl FnOnce(&Path)) -> Option<Self> {
        match self.mount("rw") {
            Err(said) => {
                eprintln!("skipped: {said}");
                return None;
            }
            Ok(mount) => fill(mount.path()),
        }
        Some(self)
    }

    /// Mounts the image itself, for filling it.
    pub fn mount(&self, options: &str) -> Result<Mount, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("mounting needs root".to_owned());
        }
        let at = tempfile::tempdir().expect("a temporary folder");
        let mount = |options: &str| {
            let words: [&OsStr; 6] = [
                "-t".as_ref(),
                "ext4".as_ref(),
                "-o".as_ref(),
                options.as_ref(),
                self.path.as_os_str(),
                at.path().as_os_str(),
            ];
            run("mount", &words)
        };
        // What is not synced is committed when the image is unmounted, so that a copy shows what the test asked for; without a
        // journal there is no such option.
        mount(&format!("loop,commit=900,{options}")).or_else(|_| mount(&format!("loop,{options}")))?;
        Ok(Mount { at: Some(at) })
    }

    /// Overwrites bytes of the image.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let file = fs::OpenOptions::new().write(true).open(&self.path).expect("the image opens");
        file.write_all_at(bytes, offset).expect("the image is written");
    }

    /// Bytes of the image.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let file = fs::File::open(&self.path).expect("the image opens");
        file.read_exact_at(&mut bytes, offset).expect("the image is read");
        bytes
    }
}

/// The record of a raw disk that a file system fills.
pub fn spec_of(path: &Path) -> DiskSpec {
    DiskSpec { layers: vec![Layer { path: path.to_owned(), format: Format::Raw }], partition: None }
}

/// How often a mount that is busy is tried again: each time a command of its own begins and ends.
const UNMOUNT_ATTEMPTS_MAX: usize = 100;

/// A mounted image; unmounted when dropped.
pub struct Mount {
    at: Option<TempDir>,
}

impl Mount {
    pub fn path(&self) -> &Path {
        self.at.as_ref().expect("mounted until dropped").path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let Some(at) = self.at.take() else { return };
        // A command that another thread has just forked holds whatever was open here until its program begins (execve(2)), and
        // for so long the mount is busy.
        for attempt in 1.. {
            match run("umount", &[at.path()]) {
                Ok(_) => return,
                Err(_) if attempt < UNMOUNT_ATTEMPTS_MAX => {}
                Err(said) => {
                    // Its folder must not be emptied while it is mounted.
                    eprintln!("{said}");
                    let _ = at.keep();
                    return;
                }
            }
        }
    }
}

/// Numbers that a seed repeats.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut random = Self(0x9E37_79B9_7F4A_7C15 ^ (seed + 1) << 20);
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Bytes that depend on every one of their places, so that a block in the wrong place shows.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A tree with one of everything that a plain folder can hold.
pub fn content() -> TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    fill(place.path(), 60);
    place
}

/// Puts one of everything below `root`; `many` is how many names its large directory has.
pub fn fill(root: &Path, many: usize) {
    let write = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).expect("a file is written");
    for length in [0, 1, 59, 60, 61, 150, 1023, 1024, 4095, 4096, 4097, 70_000, 1_500_000] {
        write(&format!("length-{length}"), &pattern(length, length as u64));
    }
    write(&"n".repeat(255), b"a long name");
    let odd: &OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&b"not-\xFF-utf8 \n"[..]);
    fs::write(root.join(odd), b"odd").expect("a file is written");
    write("hard-1", b"two names");
    fs::hard_link(root.join("hard-1"), root.join("hard-2")).expect("a hard link");
    for (length, name) in [(1, "link-1"), (58, "link-58"), (59, "link-59"), (60, "link-60"), (1000, "link-1000")] {
        symlink("t".repeat(length), root.join(name)).expect("a symbolic link");
    }
    write("set-id", b"x");
    fs::set_permissions(root.join("set-id"), fs::Permissions::from_mode(0o6751)).expect("a mode");
    nix::unistd::mkfifo(&root.join("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("a fifo");
    drop(std::os::unix::net::UnixListener::bind(root.join("socket")).ok());

    let sparse = fs::File::create(root.join("sparse")).expect("a file");
    sparse.write_all_at(b"start", 100).expect("written");
    sparse.write_all_at(&pattern(5000, 9), 3_000_000).expect("written");
    sparse.set_len(7_000_001).expect("a hole at the end");

    let mut deep = root.to_owned();
    for level in 0..12 {
        deep.push(format!("level-{level}"));
    }
    fs::create_dir_all(&deep).expect("directories");
    fs::write(deep.join("leaf"), b"deep").expect("a file is written");

    let large = root.join("many");
    fs::create_dir(&large).expect("a directory");
    for index in 0..many {
        fs::write(large.join(format!("name-{index:06}-{}", "x".repeat(index % 90))), index.to_string())
            .expect("a file");
    }
    fs::create_dir(root.join("empty")).expect("a directory");
}
