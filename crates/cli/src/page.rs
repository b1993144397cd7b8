//! The files of the page for the edge's web server.

use mez_node::web::{Asset, Assets};

/// The page of this build. Empty if it was built without a page.
pub(crate) const PAGE: Assets = Assets { files: &FILES };

static FILES: [Asset; mez_page::FILES.len()] = files();

const fn files() -> [Asset; mez_page::FILES.len()] {
    let mut files = [Asset { path: "", content_type: "", bytes: &[] }; mez_page::FILES.len()];
    let mut place = 0;
    while place < files.len() {
        let mez_page::File { path, content_type, bytes } = mez_page::FILES[place];
        files[place] = Asset { path, content_type, bytes };
        place += 1;
    }
    files
}
