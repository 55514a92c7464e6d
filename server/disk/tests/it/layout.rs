//! Layouts of the file system: one row of a table is one recipe.

use dormouse_files::meta::FileType;

use crate::{
    compare::{Picture, check, of_kernel},
    image::{Image, content},
};

/// A tree with one of everything, made with `options`, as it is and with hashed directories.
fn layout(options: &str, size: &str) {
    let content = content();
    let image = Image::make(options, size, Some(content.path()));
    let mut source = of_kernel(content.path());
    if options.contains("inline_data") {
        // Here mke2fs itself loses a hole at the end of a file.
        source.remove(&b"sparse"[..]);
    }
    assert_content(&check(&image), &source);
    image.rehash();
    assert_content(&check(&image), &source);
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

macro_rules! layouts {
    ($($name:ident: $options:literal, $size:literal;)*) => {
        $(#[test] fn $name() { layout($options, $size) })*
    };
}

layouts! {
    blocks_of_1k: "-t ext4 -b 1024", "64M";
    blocks_of_2k: "-t ext4 -b 2048", "64M";
    blocks_of_4k: "-t ext4 -b 4096", "64M";
    blocks_of_64k: "-t ext4 -b 65536", "256M";
    bigalloc: "-t ext4 -b 4096 -O bigalloc -C 16384", "64M";
    bigalloc_of_1k: "-t ext4 -b 1024 -O bigalloc", "64M";
    meta_bg: "-t ext4 -b 1024 -O meta_bg,^resize_inode", "300M";
    sparse_super2: "-t ext4 -b 4096 -O sparse_super2", "64M";
    no_flex_bg: "-t ext4 -b 1024 -O ^flex_bg", "64M";
    no_sparse_super: "-t ext4 -b 1024 -O ^sparse_super,^resize_inode", "64M";
    inodes_of_128_1k: "-t ext4 -b 1024 -I 128", "64M";
    inline_data_1k: "-t ext4 -b 1024 -O inline_data", "64M";
    inodes_of_128: "-t ext4 -b 4096 -I 128", "64M";
    inodes_of_128_unsummed: "-t ext4 -b 4096 -I 128 -O ^metadata_csum", "64M";
    inodes_of_512: "-t ext4 -b 4096 -I 512", "64M";
    inodes_of_1024: "-t ext4 -b 4096 -I 1024", "64M";
    unsummed: "-t ext4 -b 4096 -O ^metadata_csum", "64M";
    group_sums: "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg", "64M";
    group_sums_64bit: "-t ext4 -b 4096 -O ^metadata_csum,uninit_bg,64bit", "64M";
    checksum_seed: "-t ext4 -b 4096 -O metadata_csum_seed", "64M";
    narrow: "-t ext4 -b 4096 -O ^64bit", "64M";
    mmp: "-t ext4 -b 4096 -O mmp", "64M";
    no_filetype: "-t ext4 -b 4096 -O ^filetype", "64M";
    inline_data: "-t ext4 -b 4096 -O inline_data", "64M";
    inline_data_of_1024: "-t ext4 -b 4096 -O inline_data -I 1024", "64M";
    large_dir: "-t ext4 -b 4096 -O large_dir", "64M";
    ea_inode: "-t ext4 -b 4096 -O ea_inode", "64M";
    orphan_file: "-t ext4 -b 4096 -O orphan_file", "64M";
    no_journal: "-t ext4 -b 4096 -O ^has_journal", "64M";
    ext2: "-t ext2 -b 1024", "64M";
    ext2_first_revision: "-t ext2 -b 1024 -r 0 -O none", "64M";
    ext3: "-t ext3 -b 1024", "64M";
    ext3_of_4k: "-t ext3 -b 4096", "64M";
    casefold: "-t ext4 -b 4096 -O casefold", "64M";
    encrypt_unused: "-t ext4 -b 4096 -O encrypt", "64M";
    verity: "-t ext4 -b 4096 -O verity", "64M";
}
