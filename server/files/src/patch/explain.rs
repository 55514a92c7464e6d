//! Why an edit matched nothing: the nearest line, where it diverges, and the likely cause.

/// What [`crate::Fault::EditNoMatch`] tells beside the edit's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// 1-based line of the file where the old text would nearly begin.
    pub nearest_line: Option<u64>,
    /// That line, clipped at 200 bytes on a character boundary.
    pub nearest_text: Option<String>,
    /// 1-based line of the file that first differs from the old text.
    pub diverges_at_line: Option<u64>,
    /// The likely cause.
    pub cause: Option<Cause>,
}

/// Why an old text that a person or a model believes in is not in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The file's lines end with CRLF, the old text's with LF, or the other way round.
    Crlf,
    /// White space at the end of a line.
    TrailingWhitespace,
    /// White space at the beginning of a line.
    Indentation,
    /// The same characters in another Unicode form.
    UnicodeForm,
    /// The old text was pasted with line numbers, such as `12| `.
    LineNumberPrefix,
    /// The new text is there already.
    AlreadyApplied,
}

impl Cause {
    /// As the error's metadata `cause` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crlf => "crlf",
            Self::TrailingWhitespace => "trailing_whitespace",
            Self::Indentation => "indentation",
            Self::UnicodeForm => "unicode_form",
            Self::LineNumberPrefix => "line_number_prefix",
            Self::AlreadyApplied => "already_applied",
        }
    }
}
