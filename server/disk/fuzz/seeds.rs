//! Makes the seeds: small disks of every kind that the targets know, packed. Needs e2fsprogs and qemu-img, and root for the
//! one that only the kernel makes. `cargo run --manifest-path server/disk/fuzz/Cargo.toml --example seeds`

#[path = "../tests/it/image.rs"]
#[allow(dead_code, reason = "of the tests' images only a part is used here")]
mod image;
#[path = "bodies/packed.rs"]
#[allow(dead_code, reason = "seeds are only packed")]
mod packed;

use std::{fs, io::Write, path::Path};

use image::{Image, run};
use packed::pack;

fn keep(target: &str, name: &str, head: &[u8], disk: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(&folder).expect("the folder of seeds");
    let mut disk = disk.to_vec();
    disk.resize(disk.len().next_multiple_of(1024), 0);
    let input = [head, &pack(&disk)].concat();
    assert_eq!(packed::unpack(&input[head.len()..]), disk);
    println!("{target}/{name}: {} bytes", input.len());
    fs::write(folder.join(name), input).expect("the seed is written");
}

/// One of everything, as short as can be.
fn content(many: usize) -> tempfile::TempDir {
    let place = tempfile::tempdir().expect("a temporary folder");
    let root = place.path();
    let write = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).expect("a file");
    write("short", b"short");
    write("inline", &[b'i'; 100]);
    write("block", &[b'b'; 1030]);
    fs::hard_link(root.join("short"), root.join("hard")).expect("a link");
    std::os::unix::fs::symlink("short", root.join("fast")).expect("a link");
    std::os::unix::fs::symlink("slow/".repeat(20), root.join("slow")).expect("a link");
    fs::create_dir_all(root.join("a/b/c")).expect("directories");
    let scattered = fs::File::create(root.join("scattered")).expect("a file");
    for index in 0..12_u64 {
        std::os::unix::fs::FileExt::write_all_at(&scattered, b"piece", index * 4096).expect("written");
    }
    scattered.set_len(90_000).expect("a hole at the end");
    fs::create_dir(root.join("many")).expect("a directory");
    for index in 0..many {
        let name = ["plain", "größe", "ÅNGSTRÖM"][index % 3];
        fs::write(root.join(format!("many/{name}-{index}-{}", "x".repeat(index % 30))), b"").expect("a file");
    }
    place
}

fn made(options: &str, size: &str) -> Image {
    let image = Image::make(&format!("{options} -m 0 -N 96 -I 256"), size, Some(content(60).path()));
    image.debugfs("rmdir lost+found\nea_set short user.a value\nea_set block user.b -f /etc/hostname\n");
    image.rehash();
    image
}

fn bytes(image: &Image) -> Vec<u8> {
    fs::read(&image.path).expect("the image is read")
}

fn block(image: &Image, name: &str, logical: u64) -> u64 {
    let said = run("debugfs", &["-R", &format!("bmap {name} {logical}"), &image.path.display().to_string()]);
    said.expect("debugfs").lines().find_map(|line| line.trim().parse().ok()).expect("a block number")
}

fn images() {
    let none = "^has_journal,^resize_inode,^metadata_csum";
    for (name, options) in [
        ("extents", format!("-t ext4 -b 1024 -O {none}")),
        ("inline", format!("-t ext4 -b 1024 -O {none},inline_data,ea_inode")),
        ("numbers", "-t ext2 -b 1024 -O ^resize_inode".to_owned()),
        ("bigalloc", format!("-t ext4 -b 1024 -O {none},bigalloc -C 2048")),
        ("meta-groups", format!("-t ext4 -b 1024 -O {none},meta_bg")),
        ("folding", format!("-t ext4 -b 1024 -O {none},casefold,large_dir,encrypt")),
    ] {
        keep("image", name, &[], &bytes(&made(&options, "512K")));
    }
    let summed = "^has_journal,^resize_inode";
    for (name, options) in [
        ("extents", format!("-t ext4 -b 1024 -O {summed}")),
        ("inline", format!("-t ext4 -b 1024 -O {summed},inline_data,metadata_csum_seed,ea_inode")),
        ("of-4k", format!("-t ext4 -b 4096 -O {summed}")),
    ] {
        keep("sealed", name, &[], &bytes(&made(&options, "1M")));
    }
}

fn journals() {
    let data = tempfile::NamedTempFile::new().expect("a temporary file");
    data.as_file().write_all(&[b'x'; 1024]).expect("written");
    let data = data.path().display();
    for (name, how, open, options) in [
        ("plain", 2, "jo", "-O ^metadata_csum,^64bit,^resize_inode"),
        ("summed-2", 3, "jo -c -v 2", "-O ^resize_inode"),
        ("summed-3", 3, "jo -c -v 3", "-O ^resize_inode"),
        ("summed-whole", 2, "jo -c", "-O ^metadata_csum,^resize_inode"),
    ] {
        let image = made(&format!("-t ext4 -b 1024 -J size=1 {options}"), "3M");
        let (one, two) = (block(&image, "/block", 0), block(&image, "/block", 1));
        // debugfs sums a revoke in a way that no kernel takes where whole transactions are summed.
        let revoke = if name == "summed-whole" { String::new() } else { format!("jw -r {one}\n") };
        let again = format!("jw -b {two} {data}\njw -b {one} {data}");
        image.debugfs(&format!("{open}\njw -b {one} {data}\n{revoke}{again}\njc\n"));
        keep("journal", name, &[how], &bytes(&image));
    }
    let fast = "-t ext4 -b 1024 -m 0 -N 64 -O ^metadata_csum,^resize_inode,fast_commit -J size=1,fast_commit_size=64";
    let image = Image::make(fast, "4M", None);
    match image.mount("rw") {
        Err(said) => println!("journal/fast-commits is not made: {said}"),
        Ok(mount) => {
            let write = |name: &str| {
                let mut file = fs::File::create(mount.path().join(name)).expect("a file");
                file.write_all(&[b'f'; 1500]).and_then(|()| file.sync_all()).expect("written");
            };
            write("before");
            nix::unistd::sync();
            write("after");
            fs::rename(mount.path().join("before"), mount.path().join("moved")).expect("renamed");
            fs::create_dir(mount.path().join("folder")).expect("a directory");
            write("folder/inside");
            keep("journal", "fast-commits", &[2], &bytes(&image.copy()));
        }
    }
}

fn directories() {
    let place = tempfile::tempdir().expect("a temporary folder");
    fs::create_dir(place.path().join("d")).expect("a directory");
    for index in 0..150 {
        fs::write(place.path().join(format!("d/{}", "n".repeat(30 + index))), b"").expect("a file");
    }
    // Its directory is emptied, so that what an input holds is all that it holds.
    let options = "-t ext4 -b 1024 -m 0 -N 96 -I 256 -O ^has_journal,^resize_inode,^metadata_csum";
    let base = Image::make(
        "-t ext4 -b 1024 -m 0 -N 256 -I 256 -O ^has_journal,^resize_inode,^metadata_csum",
        "512K",
        Some(place.path()),
    );
    base.debugfs("rmdir lost+found\n");
    let mut disk = bytes(&base);
    let blocks = run("debugfs", &["-R", "blocks /d", &base.path.display().to_string()]).expect("debugfs");
    let blocks: Vec<usize> = blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    for block in blocks {
        disk[block * 1024..(block + 1) * 1024].fill(0);
    }
    keep("base", "directory", &[], &disk);

    let lengths: &[(&str, u8, u8, usize)] =
        &[("linear", 0, 0, 20), ("hashed", 1, 1, 60), ("folding", 2, 3, 20), ("folding-hashed", 3, 3, 60)];
    for &(name, flags, features, many) in lengths {
        let image = Image::make(options, "512K", Some(content(many).path()));
        if many > 30 {
            image.rehash();
        }
        let disk = bytes(&image);
        let said = run("debugfs", &["-R", "blocks /many", &image.path.display().to_string()]).expect("debugfs");
        let blocks = said.split_whitespace().filter_map(|word| word.parse::<usize>().ok());
        let held: Vec<u8> = blocks.flat_map(|block| disk[block * 1024..(block + 1) * 1024].to_vec()).collect();
        // Names lead to inodes that the base does not have, but for one.
        keep("directory", name, &[flags, features, 1], &held);
    }
    let mut inline = vec![0; 1024];
    inline[..4].copy_from_slice(&2_u32.to_le_bytes());
    inline[4..13].copy_from_slice(&[13, 0, 0, 0, 56, 0, 1, 1, b'i']);
    keep("directory", "inline", &[4, 4, 1], &inline);
}

fn partitions() {
    let mut gpt = vec![0; 64 << 10];
    for (own, table) in [(1_usize, 2_usize), (127, 95)] {
        let (at, entries) = (own * 512, table * 512);
        gpt[at..at + 16].copy_from_slice(b"EFI PART\0\0\x01\0\x5C\0\0\0");
        gpt[at + 24] = own as u8;
        gpt[at + 72] = table as u8;
        gpt[at + 80..at + 88].copy_from_slice(&[128, 0, 0, 0, 128, 0, 0, 0]);
        let linux = [0xAF, 0x3D, 0xC6, 0x0F, 0x83, 0x84, 0x72, 0x47, 0x8E, 0x79, 0x3D, 0x69, 0xD8, 0x47, 0x7D, 0xE4];
        gpt[entries..entries + 16].copy_from_slice(&linux);
        gpt[entries + 16..entries + 32].fill(7);
        gpt[entries + 32] = 40;
        gpt[entries + 40] = 60;
        gpt[entries + 256..entries + 272].copy_from_slice(&linux);
        gpt[entries + 288] = 70;
        gpt[entries + 296] = 80;
    }
    gpt[450] = 0xEE;
    gpt[458] = 1;
    gpt[510..512].copy_from_slice(&[0x55, 0xAA]);
    keep("partition", "gpt", &[1], &gpt);
    let mut backup = gpt.clone();
    backup[512..1024].fill(0);
    keep("partition", "backup", &[1], &backup);
    let mut mbr = vec![0; 64 << 10];
    mbr[450] = 0x83;
    mbr[454..462].copy_from_slice(&[8, 0, 0, 0, 16, 0, 0, 0]);
    mbr[466] = 0x83;
    mbr[470..478].copy_from_slice(&[40, 0, 0, 0, 16, 0, 0, 0]);
    mbr[510..512].copy_from_slice(&[0x55, 0xAA]);
    keep("partition", "mbr", &[0], &mbr);
}

fn layers() {
    let image = Image::make(
        "-t ext4 -b 1024 -m 0 -N 32 -O ^has_journal,^resize_inode,^metadata_csum",
        "256K",
        Some(content(4).path()),
    );
    let raw = image.path.display().to_string();
    let place = tempfile::tempdir().expect("a temporary folder");
    let path = place.path().join("layer");
    let layer = path.display().to_string();
    let small = "cluster_size=512";
    for (name, arguments) in [
        ("plain", vec!["convert", "-O", "qcow2", "-o", small]),
        ("compressed", vec!["convert", "-c", "-O", "qcow2", "-o", "cluster_size=4096"]),
        ("old", vec!["convert", "-O", "qcow2", "-o", "compat=0.10,cluster_size=4096"]),
    ] {
        run("qemu-img", &[&arguments[..], &[&raw, &layer]].concat()).expect("qemu-img");
        keep("qcow2", name, &[0], &fs::read(&path).expect("the layer is read"));
    }
    run("qemu-img", &["create", "-q", "-u", "-f", "qcow2", "-o", small, "-F", "raw", "-b", "base", &layer, "64K"])
        .expect("qemu-img");
    run("qemu-io", &["-f", "qcow2", "-c", "write -P 7 1k 3k", &format!("json:{{\"driver\":\"qcow2\",\"backing\":null,\"file\":{{\"driver\":\"file\",\"filename\":\"{layer}\"}}}}")]).ok();
    keep("qcow2", "over-a-base", &[1], &fs::read(&path).expect("the layer is read"));
}

fn main() {
    images();
    journals();
    directories();
    partitions();
    layers();
}
