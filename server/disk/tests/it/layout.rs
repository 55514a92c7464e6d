//! Layouts of the file system: one row of a table is one recipe.

use dormouse_files::meta::FileType;

use crate::{
    compare::{Picture, of_kernel, of_reader, open},
    image::{Image, content},
    matrix::Row,
};

/// A tree with one of everything, made with `options`, as it is and with hashed directories.
fn layout(options: &str, size: &str) -> Option<Image> {
    let content = content();
    let image = Image::make(options, size, Some(content.path()));
    let mut source = of_kernel(content.path()).expect("it opens every file");
    if options.contains("inline_data") {
        // Here mke2fs itself loses a hole at the end of a file.
        source.remove(&b"sparse"[..]);
    }
    let held = |image: &Image| of_reader(&open(&image.spec())).expect("everything is read");
    assert_content(&held(&image), &source);
    // The rest of the comparison is made with the hashed one, which differs in its directories only.
    image.rehash();
    assert_content(&held(&image), &source);
    Some(image)
}

/// What a copy of a folder keeps of it must be there, whether or not the kernel mounts the image. What mke2fs does not keep,
/// and what file systems count in their own way, is left out.
fn assert_content(image: &Picture, folder: &Picture) {
    assert!(folder.len() > 90, "the folder holds only {} files", folder.len());
    for (name, node) in folder.iter().filter(|(name, _)| !name.is_empty()) {
        let held = image.get(name).unwrap_or_else(|| panic!("/{} is missing", name.escape_ascii()));
        let kept = |node: &crate::compare::Node| {
            let size = if node.meta.kind == FileType::Directory { 0 } else { node.meta.size_bytes };
            let owner = (node.meta.uid, node.meta.gid, node.meta.mode);
            (node.meta.kind, size, owner, node.meta.modify_time.seconds, node.target.clone(), node.sha256.clone())
        };
        assert_eq!(kept(held), kept(node), "/{}", name.escape_ascii());
    }
}

const ROWS: &[(&str, &str, &str)] = &[
    ("blocks of 1k", "-t ext4 -b 1024", "64M"),
    ("blocks of 2k", "-t ext4 -b 2048", "64M"),
    ("blocks of 4k", "-t ext4 -b 4096", "64M"),
    ("blocks of 64k", "-t ext4 -b 65536", "256M"),
    ("bigalloc", "-t ext4 -b 4096 -O bigalloc -C 16384", "64M"),
    ("bigalloc of 1k", "-t ext4 -b 1024 -O bigalloc", "64M"),
    ("meta bg", "-t ext4 -b 1024 -O meta_bg,^resize_inode", "300M"),
    ("sparse super2", "-t ext4 -b 4096 -O sparse_super2", "64M"),
    ("no flex bg", "-t ext4 -b 1024 -O ^flex_bg", "64M"),
    ("no sparse super", "-t ext4 -b 1024 -O ^sparse_super,^resize_inode", "64M"),
    ("inodes of 128 1k", "-t ext4 -b 1024 -I 128", "64M"),
    ("inline data 1k", "-t ext4 -b 1024 -O inline_data", "64M"),
    ("inodes of 128", "-t ext4 -b 4096 -I 128", "64M"),
    ("inodes of 128 unsummed", "-t ext4 -b 4096 -I 128 -O ^metadata_csum", "64M"),
    ("inodes of 512", "-t ext4 -b 4096 -I 512", "64M"),
    ("inodes of 1024", "-t ext4 -b 4096 -I 1024", "64M"),
    ("unsummed", "-t ext4 -b 4096 -O ^metadata_csum", "64M"),
    ("group sums", "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg", "64M"),
    ("group sums 64bit", "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg,64bit", "64M"),
    ("checksum seed", "-t ext4 -b 4096 -O metadata_csum_seed", "64M"),
    ("narrow", "-t ext4 -b 4096 -O ^64bit", "64M"),
    ("mmp", "-t ext4 -b 4096 -O mmp", "64M"),
    ("no filetype", "-t ext4 -b 4096 -O ^filetype", "64M"),
    ("inline data", "-t ext4 -b 4096 -O inline_data", "64M"),
    ("inline data of 1024", "-t ext4 -b 4096 -O inline_data -I 1024", "64M"),
    ("large dir", "-t ext4 -b 4096 -O large_dir", "64M"),
    ("ea inode", "-t ext4 -b 4096 -O ea_inode", "64M"),
    ("orphan file", "-t ext4 -b 4096 -O orphan_file", "64M"),
    ("no journal", "-t ext4 -b 4096 -O ^has_journal", "64M"),
    ("ext2", "-t ext2 -b 1024", "64M"),
    ("ext2 first revision", "-t ext2 -b 1024 -r 0 -O none", "64M"),
    ("ext3", "-t ext3 -b 1024", "64M"),
    ("ext3 of 4k", "-t ext3 -b 4096", "64M"),
    ("casefold", "-t ext4 -b 4096 -O casefold", "64M"),
    ("encrypt unused", "-t ext4 -b 4096 -O encrypt", "64M"),
    ("verity", "-t ext4 -b 4096 -O verity", "64M"),
];

pub fn rows() -> Vec<Row> {
    ROWS.iter().map(|&(name, options, size)| Row::new("layout", name, move || layout(options, size))).collect()
}
