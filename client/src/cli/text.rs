//! Answers as lines, for people and line tools. Pure: from an answer to bytes.
//!
//! Names and lines are printed as the bytes they are. On a terminal (with colours or without) control characters in them are
//! shown instead of obeyed, for a file in a workspace must not be able to move a reader's cursor.

use dormouse_client::{
    proto::files::v1::{FileInfo, FileType, Match},
    words,
};

const PATH_COLOUR: &str = "35";
const LINE_COLOUR: &str = "32";
const MATCH_COLOUR: &str = "1;31";
const SIGN_COLOUR: &str = "36";
const DIRECTORY_COLOUR: &str = "1;34";

/// How bytes of a workspace are put before a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    pub colour: bool,
    /// Show control characters instead of sending them.
    pub terminal: bool,
}

impl Style {
    fn paint(self, out: &mut Vec<u8>, colour: &str, bytes: &[u8]) {
        if !self.colour || bytes.is_empty() {
            return self.plain(out, bytes);
        }
        out.extend_from_slice(format!("\x1b[{colour}m").as_bytes());
        self.plain(out, bytes);
        out.extend_from_slice(b"\x1b[0m");
    }

    /// `^` and the letter, as stty(1) and cat -v show a control character; a tab is left alone.
    fn plain(self, out: &mut Vec<u8>, bytes: &[u8]) {
        if !self.terminal {
            return out.extend_from_slice(bytes);
        }
        for letter in String::from_utf8_lossy(bytes).chars() {
            match letter {
                '\t' => out.push(b'\t'),
                '\0'..='\x1f' | '\x7f' => out.extend_from_slice(&[b'^', letter as u8 ^ 0x40]),
                // C1 controls: some terminals obey them as they do ESC sequences.
                '\u{80}'..='\u{9f}' => out.extend_from_slice("\u{fffd}".as_bytes()),
                _ => out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }
}

/// The bytes of a name or a line: the raw ones where the text is not the truth.
fn bytes<'a>(text: &'a str, raw: &'a [u8]) -> &'a [u8] {
    if raw.is_empty() { text.as_bytes() } else { raw }
}

/// Prints matches like grep(1): `path:line:column: text`, context lines as `path-line- text`, groups that touch merged and the
/// others divided by `--`.
#[derive(Debug)]
pub struct SearchPrinter {
    style: Style,
    /// Whether context was asked for: only then are groups divided.
    context: bool,
    path: Vec<u8>,
    /// The last line printed of `path`; 0 before the first.
    last: i64,
    /// Lines after the last match, held back: the next match may be one of them.
    held: Vec<(i64, Vec<u8>)>,
}

impl SearchPrinter {
    pub fn new(style: Style, context: bool) -> Self {
        Self { style, context, path: Vec::new(), last: 0, held: Vec::new() }
    }

    /// Adds the next match in path order.
    pub fn add(&mut self, found: &Match, out: &mut Vec<u8>) {
        let path = bytes(&found.path, &found.raw_path);
        let line = i64::from(found.line);
        if path != self.path {
            self.finish(out);
            if self.context && !self.path.is_empty() {
                self.divide(out);
            }
            self.path = path.to_vec();
            self.last = 0;
        } else {
            let held = std::mem::take(&mut self.held);
            for (number, text) in held.into_iter().filter(|(number, _)| *number < line) {
                self.context_line(number, &text, out);
            }
        }
        let first_before = line.saturating_sub(found.before.len() as i64);
        let begin = first_before.max(self.last + 1).min(line);
        if self.context && self.last > 0 && begin > self.last + 1 {
            self.divide(out);
        }
        for (number, before) in (first_before..).zip(&found.before) {
            if number > self.last {
                self.context_line(number, bytes(&before.text, &before.raw), out);
            }
        }
        self.match_line(found, out);
        let after = found.after.iter().map(|after| bytes(&after.text, &after.raw).to_vec());
        self.held = (line.saturating_add(1)..).zip(after).collect();
    }

    /// Prints what was held back.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        for (number, text) in std::mem::take(&mut self.held) {
            self.context_line(number, &text, out);
        }
    }

    fn divide(&self, out: &mut Vec<u8>) {
        self.style.paint(out, SIGN_COLOUR, b"--");
        out.push(b'\n');
    }

    fn match_line(&mut self, found: &Match, out: &mut Vec<u8>) {
        self.head(b":", i64::from(found.line), out);
        self.style.paint(out, LINE_COLOUR, found.column.to_string().as_bytes());
        self.style.paint(out, SIGN_COLOUR, b":");
        out.push(b' ');
        let text = bytes(&found.text, &found.raw_text);
        let place = |column: i32| usize::try_from(column).unwrap_or(0).saturating_sub(1).min(text.len());
        let begin = place(found.column);
        let end = place(found.end_column).max(begin);
        self.style.plain(out, &text[..begin]);
        self.style.paint(out, MATCH_COLOUR, &text[begin..end]);
        self.style.plain(out, &text[end..]);
        out.push(b'\n');
        self.last = i64::from(found.line);
    }

    fn context_line(&mut self, number: i64, text: &[u8], out: &mut Vec<u8>) {
        self.head(b"-", number, out);
        out.push(b' ');
        self.style.plain(out, text);
        out.push(b'\n');
        self.last = number;
    }

    fn head(&self, sign: &[u8], number: i64, out: &mut Vec<u8>) {
        self.style.paint(out, PATH_COLOUR, &self.path);
        self.style.paint(out, SIGN_COLOUR, sign);
        self.style.paint(out, LINE_COLOUR, number.to_string().as_bytes());
        self.style.paint(out, SIGN_COLOUR, sign);
    }
}

/// A line of a unified diff, in the colour of its sign.
pub fn diff_line(line: &str, style: Style, out: &mut Vec<u8>) {
    let colour = match line.as_bytes().first() {
        Some(b'-') => MATCH_COLOUR,
        Some(b'+') => LINE_COLOUR,
        Some(b'@') => SIGN_COLOUR,
        _ => return style.plain(out, line.as_bytes()),
    };
    style.paint(out, colour, line.as_bytes());
}

/// An entry's path on a line of its own; a directory's ends with a slash.
pub fn entry(file: &FileInfo, style: Style, out: &mut Vec<u8>) {
    named(file, style, out);
    out.push(b'\n');
}

/// An entry as `ls -ln` shows it, with the time in UTC, and with its revision where that was asked for.
pub fn long_entry(file: &FileInfo, with_revision: bool, style: Style, out: &mut Vec<u8>) {
    let (mode, links, uid, gid, size) = (mode_text(file), file.link_count, file.uid, file.gid, file.size_bytes);
    let time = time_text(file.modify_time.as_ref().map_or(0, |time| time.seconds));
    out.extend_from_slice(format!("{mode} {links:>3} {uid:>5} {gid:>5} {size:>10} {time} ").as_bytes());
    if with_revision {
        let revision = file.revision.as_deref().unwrap_or("-");
        out.extend_from_slice(format!("{revision:<64} ").as_bytes());
    }
    named(file, style, out);
    if file.r#type() == FileType::Symlink {
        out.extend_from_slice(b" -> ");
        style.plain(out, bytes(&file.symlink_target, &file.raw_symlink_target));
    }
    out.push(b'\n');
}

fn named(file: &FileInfo, style: Style, out: &mut Vec<u8>) {
    let path = bytes(&file.path, &file.raw_path);
    if file.r#type() == FileType::Directory {
        style.paint(out, DIRECTORY_COLOUR, path);
        if path != b"/" {
            out.push(b'/');
        }
    } else {
        style.plain(out, path);
    }
}

/// What `stat` prints: a line for each thing known.
pub fn stat(file: &FileInfo, style: Style, out: &mut Vec<u8>) {
    let mut line = |name: &str, value: &[u8]| {
        out.extend_from_slice(format!("{name}: ").as_bytes());
        style.plain(out, value);
        out.push(b'\n');
    };
    line("path", bytes(&file.path, &file.raw_path));
    line("type", words::file_type(file.r#type()).as_bytes());
    if file.r#type() == FileType::Symlink {
        line("target", bytes(&file.symlink_target, &file.raw_symlink_target));
    }
    line("size", file.size_bytes.to_string().as_bytes());
    line("mode", format!("{:04o}", file.mode).as_bytes());
    line("owner", format!("{}:{}", file.uid, file.gid).as_bytes());
    line("links", file.link_count.to_string().as_bytes());
    if let Some(time) = &file.modify_time {
        line("modified", time_text(time.seconds).as_bytes());
    }
    if let Some(revision) = &file.revision {
        line("revision", revision.as_bytes());
    }
}

/// As ls(1) writes it, such as `drwxr-xr-t`.
fn mode_text(file: &FileInfo) -> String {
    let kind = match file.r#type() {
        FileType::Unspecified => '?',
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
    };
    let mut text = String::from(kind);
    // Each triple's execute bit shares its letter with set-user-id, set-group-id or sticky.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = file.mode >> shift;
        text.push(if bits & 4 == 0 { '-' } else { 'r' });
        text.push(if bits & 2 == 0 { '-' } else { 'w' });
        text.push(match (bits & 1 != 0, file.mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Seconds since 1970 as `2026-01-31T08:05:09Z` (RFC 3339). A disk may hold any number: years outside 0 to 9999 are
/// written with their sign, and nothing overflows.
pub fn time_text(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a date in the proleptic Gregorian calendar, by eras of 400 years that begin on 1 March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use dormouse_client::proto::files::v1::Line;

    use super::*;

    fn lines(texts: &[&str]) -> Vec<Line> {
        texts.iter().map(|text| Line { text: (*text).into(), ..Default::default() }).collect()
    }

    fn found(path: &str, line: i32, text: &str, before: &[&str], after: &[&str]) -> Match {
        Match {
            path: path.into(),
            line,
            column: 3,
            end_column: 7,
            text: text.into(),
            before: lines(before),
            after: lines(after),
            ..Default::default()
        }
    }

    fn check(context: bool, style: Style, matches: &[Match], expect: &str) {
        let mut printer = SearchPrinter::new(style, context);
        let mut out = Vec::new();
        matches.iter().for_each(|found| printer.add(found, &mut out));
        printer.finish(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), expect);
    }

    #[test]
    fn matches_without_context_are_one_line_each() {
        let matches = [found("/p/a.py", 4, "# TODO x", &[], &[]), found("/p/b.py", 9, "# TODO y", &[], &[])];
        check(false, Style::default(), &matches, "/p/a.py:4:3: # TODO x\n/p/b.py:9:3: # TODO y\n");
    }

    #[test]
    fn context_of_adjacent_matches_is_merged_and_groups_are_divided() {
        let matches = [
            found("/p/a", 2, "# TODO 2", &["one"], &["# TODO 3"]),
            found("/p/a", 3, "# TODO 3", &["# TODO 2"], &["four"]),
            found("/p/a", 6, "# TODO 6", &["five"], &["seven"]),
            found("/p/a", 10, "# TODO 10", &["nine"], &[]),
            found("/p/b", 1, "# TODO 1", &[], &["two"]),
        ];
        let expect = "\
            /p/a-1- one\n/p/a:2:3: # TODO 2\n/p/a:3:3: # TODO 3\n/p/a-4- four\n\
            /p/a-5- five\n/p/a:6:3: # TODO 6\n/p/a-7- seven\n--\n\
            /p/a-9- nine\n/p/a:10:3: # TODO 10\n--\n\
            /p/b:1:3: # TODO 1\n/p/b-2- two\n";
        check(true, Style::default(), &matches, expect);
    }

    #[test]
    fn overlapping_context_is_printed_once() {
        let matches = [
            found("/a", 3, "# TODO 3", &["1", "2"], &["4", "5"]),
            found("/a", 6, "# TODO 6", &["4", "5"], &["7", "8"]),
        ];
        let expect = "/a-1- 1\n/a-2- 2\n/a:3:3: # TODO 3\n/a-4- 4\n/a-5- 5\n/a:6:3: # TODO 6\n/a-7- 7\n/a-8- 8\n";
        check(true, Style::default(), &matches, expect);
    }

    #[test]
    fn a_first_match_far_down_has_no_divider_before_it() {
        check(true, Style::default(), &[found("/a", 90, "# TODO", &["89"], &[])], "/a-89- 89\n/a:90:3: # TODO\n");
    }

    #[test]
    fn raw_bytes_are_printed_as_they_are() {
        let mut hit = found("/p/\u{fffd}", 1, "# TODO \u{fffd}", &[], &[]);
        hit.raw_path = b"/p/\xff".to_vec().into();
        hit.raw_text = b"# TODO \xfe".to_vec().into();
        let mut out = Vec::new();
        SearchPrinter::new(Style::default(), false).add(&hit, &mut out);
        assert_eq!(out, b"/p/\xff:1:3: # TODO \xfe\n");
    }

    #[test]
    fn a_terminal_shows_control_characters_and_colours_the_match() {
        let style = Style { colour: true, terminal: true };
        let expect = "\x1b[35m/a\x1b[0m\x1b[36m:\x1b[0m\x1b[32m1\x1b[0m\x1b[36m:\x1b[0m\x1b[32m3\x1b[0m\x1b[36m:\x1b[0m \
            # \x1b[1;31mTODO\x1b[0m ^[[2J\t^?\u{fffd}\n";
        check(false, style, &[found("/a", 1, "# TODO \x1b[2J\t\x7f\u{9b}", &[], &[])], expect);
    }

    #[test]
    fn columns_outside_the_line_do_no_harm() {
        for (column, end_column) in [(0, 0), (-5, 900), (900, 3), (i32::MAX, i32::MIN)] {
            let hit = Match { column, end_column, ..found("/a", 1, "# TODO", &[], &[]) };
            check(false, Style::default(), &[hit], &format!("/a:1:{column}: # TODO\n"));
        }
        let odd = Match { line: i32::MIN, ..found("/a", 1, "x", &["b"], &["c"]) };
        let mut out = Vec::new();
        let mut printer = SearchPrinter::new(Style::default(), true);
        printer.add(&odd, &mut out);
        printer.add(&Match { line: i32::MAX, ..odd.clone() }, &mut out);
        printer.finish(&mut out);
    }

    fn file(kind: FileType, mode: u32) -> FileInfo {
        FileInfo {
            path: "/p/x".into(),
            r#type: kind.into(),
            size_bytes: 12,
            mode,
            uid: 501,
            gid: 20,
            link_count: 1,
            modify_time: Some(prost_types::Timestamp { seconds: 1_769_846_709, nanos: 5 }),
            symlink_target: "y".into(),
            ..Default::default()
        }
    }

    fn check_long(file: &FileInfo, revision: bool, expect: &str) {
        let mut out = Vec::new();
        long_entry(file, revision, Style::default(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn long_entries_are_as_ls_prints_them() {
        check_long(
            &file(FileType::Regular, 0o644),
            false,
            "-rw-r--r--   1   501    20         12 2026-01-31T08:05:09Z /p/x\n",
        );
        check_long(
            &file(FileType::Directory, 0o1777),
            false,
            "drwxrwxrwt   1   501    20         12 2026-01-31T08:05:09Z /p/x/\n",
        );
        check_long(
            &file(FileType::Symlink, 0o777),
            false,
            "lrwxrwxrwx   1   501    20         12 2026-01-31T08:05:09Z /p/x -> y\n",
        );
        let plain = file(FileType::Fifo, 0o6640);
        let dash = format!("{:<64}", "-");
        check_long(&plain, true, &format!("prwSr-S---   1   501    20         12 2026-01-31T08:05:09Z {dash} /p/x\n"));
    }

    #[test]
    fn stat_prints_a_line_for_each_thing_known() {
        let mut known = file(FileType::Regular, 0o4755);
        known.revision = Some("ab".into());
        let mut out = Vec::new();
        stat(&known, Style::default(), &mut out);
        let expect = "path: /p/x\ntype: regular\nsize: 12\nmode: 4755\nowner: 501:20\nlinks: 1\nmodified: 2026-01-31T08:05:09Z\nrevision: ab\n";
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    #[test]
    fn times_of_any_kind_are_written() {
        assert_eq!(time_text(0), "1970-01-01T00:00:00Z");
        assert_eq!(time_text(-1), "1969-12-31T23:59:59Z");
        assert_eq!(time_text(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time_text(4_102_444_799), "2099-12-31T23:59:59Z");
        assert_eq!(time_text(-62_167_219_200), "0000-01-01T00:00:00Z");
        for wild in [i64::MIN, i64::MAX] {
            assert!(time_text(wild).ends_with('Z'));
        }
    }
}
