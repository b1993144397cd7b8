//! The page that an edge serves to browsers: the files that `npm run build` makes from `web/`, embedded in the binary.
//!
//! This crate depends on nothing, and only the command depends on it: `mez edge` hands [`FILES`] to its web server as a value. A build
//! without Node, or before `tools/build` has run, compiles as well. [`FILES`] is then empty, and the server reports that it has no page.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct File {
    /// The path below the page's address, without a leading slash: `index.html`,
    /// `assets/index-1f3a.js`. The name of a file below `assets/` contains a digest of its bytes.
    pub path: &'static str,
    /// The media type, such as `text/html; charset=utf-8`.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

/// All files of the page, by path. Empty: this build has no page.
pub const FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/files.rs"));

#[cfg(test)]
mod tests {
    use super::FILES;

    /// The most bytes that a browser loads, all files together.
    const PAGE_BYTES_MAX: usize = 400_000;

    /// A build has no page, or a complete and small one that loads nothing from other servers.
    #[test]
    fn page_is_absent_or_whole_and_small() {
        let Some(index) = FILES.iter().find(|file| file.path == "index.html") else {
            assert!(FILES.is_empty(), "web/dist has files but no index.html; build it again: tools/build");
            return;
        };
        let html = std::str::from_utf8(index.bytes).expect("it is text");
        for reference in html.split(['"', '\'']).filter(|word| word.starts_with('/')) {
            assert!(
                FILES.iter().any(|file| file.path == &reference[1..]),
                "index.html names {reference}, which is not there"
            );
        }
        assert!(!html.contains("://"), "index.html names another server: {html}");
        assert!(
            !html.contains("<style") && !html.contains(" style="),
            "the page's policy allows no inline styles: {html}"
        );
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= PAGE_BYTES_MAX, "the page has {bytes} bytes, and may have {PAGE_BYTES_MAX}");
    }
}
