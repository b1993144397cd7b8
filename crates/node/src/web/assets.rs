//! The files of the page, and the descriptions of the edge's interfaces. A build without a page has a plain page, which can at least sign in.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path without the first slash: `index.html`, `assets/app-1f3a.js`.
    pub path: &'static str,
    /// The media type, such as `text/html; charset=utf-8`.
    pub content_type: &'static str,
    /// The content.
    pub bytes: &'static [u8],
}

/// All files of the page. A file below `assets/` never changes under its name, so browsers cache it for good.
#[derive(Clone, Copy, Debug, Default)]
pub struct Assets {
    /// Empty: this build has no page.
    pub files: &'static [Asset],
}

/// The files that a build without a page serves.
const PLAIN: &[Asset] = &[
    Asset {
        path: "index.html",
        content_type: "text/html; charset=utf-8",
        bytes: include_bytes!("plain.html"),
    },
    Asset {
        path: "plain.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("plain.js"),
    },
];

/// The descriptions of both interfaces, as this version of the edge speaks them.
const INTERFACES: &[Asset] = &[
    Asset {
        path: "mez.proto",
        content_type: "text/plain; charset=utf-8",
        bytes: include_bytes!("../../proto/mez/v1/mez.proto"),
    },
    Asset {
        path: "openapi.json",
        content_type: "application/json",
        bytes: include_bytes!("../../../../docs/schema/openapi.json"),
    },
];

impl Assets {
    /// The file at the path of a request, which begins with a slash.
    pub(super) fn find(&self, path: &str) -> Option<&'static Asset> {
        let files = if self.files.is_empty() { PLAIN } else { self.files };
        let path = path.strip_prefix('/')?;
        let path = if path.is_empty() { "index.html" } else { path };
        files.iter().chain(INTERFACES).find(|file| file.path == path)
    }
}

impl Asset {
    /// Whether the file never changes under its name.
    pub(super) fn is_immutable(&self) -> bool {
        self.path.starts_with("assets/")
    }
}
