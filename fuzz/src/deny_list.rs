//! Fuzzes the reader of deny lists: their content, and their forms on links and in files.

use std::sync::OnceLock;

use bytes::Bytes;
use mez_core::revocation::{ENTRIES_MAX, Entry, Revocations};
use mez_core::units::Timestamp;
use mez_node::identity::{KeyFolder, TemporarySite};
use mez_node::revocation::{ListError, SignedList};

/// A site, and the only list that its authority has signed.
struct Site {
    keys: KeyFolder,
    genuine: SignedList,
}

/// The input's first byte selects the kind of the rest: the content of a list, a list with its signature as on a link, the
/// text of a file, or edits of the genuine list. Each edit has three bytes: a place, and the change (0: the list ends there).
pub fn deny_list(bytes: &[u8]) {
    taken(bytes);
}

/// Reads an input. Returns whether it got as far as the signature, for the test of the committed inputs.
pub fn taken(bytes: &[u8]) -> bool {
    let Some((&which, rest)) = bytes.split_first() else { return false };
    match which % 4 {
        0 => content(rest),
        1 => signed(rest.to_vec()),
        2 => judge(from_text(&String::from_utf8_lossy(rest))),
        _ => signed(edited(rest)),
    }
}

/// A valid list for the site of [`site`].
pub fn example() -> Revocations {
    let entry = |because: &str| Entry {
        since: Timestamp::from_nanos(7),
        until: Timestamp::MAX,
        because: because.into(),
    };
    let list = Revocations::none("fuzz");
    let list = list.with(Timestamp::MIN, "camera/dock/cam1".parse().expect("a member"), entry("stolen"));
    let list =
        list.expect("there is room").with(Timestamp::MIN, "3f2a90c4".parse().expect("a serial"), entry(""));
    list.expect("there is room")
}

fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| {
        let name = "fuzz".parse().expect("the name of a site");
        let site = TemporarySite::create(&name).expect("a folder that can be written");
        let authority = site.keys().load_authority().expect("it was made just now");
        let genuine = SignedList::sign(&authority, example()).expect("keys that can sign");
        // The folder is deleted here. The keys that were read remain usable.
        Site { keys: site.keys().clone(), genuine }
    })
}

fn from_text(text: &str) -> Result<SignedList, ListError> {
    let trust = site().keys.trust();
    SignedList::from_text(text, trust)
}

/// Equal lists must have equal bytes, so that two edges never disagree about one.
fn content(bytes: &[u8]) -> bool {
    match Revocations::decode(bytes) {
        Ok(list) => {
            assert_eq!(list.encode(), bytes, "another text says the same");
            assert!(list.len() <= ENTRIES_MAX && list.version() > 0);
            for (subject, entry) in list.entries() {
                assert_eq!(subject.to_string().parse().as_ref(), Ok(&subject));
                assert_eq!(list.get(&subject), Some(entry));
            }
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// Reads the list as it comes on a link and as a file contains it. Both must give the same result.
fn signed(bytes: Vec<u8>) -> bool {
    let bytes: Bytes = bytes.into();
    let trust = site().keys.trust();
    let read = SignedList::read(bytes.clone(), trust);
    let file = SignedList { list: example(), bytes }.to_text();
    assert_eq!(from_text(&file), read);
    judge(read)
}

/// A trusted list must be the one that the authority has signed.
fn judge(read: Result<SignedList, ListError>) -> bool {
    match read {
        Ok(read) => {
            assert_eq!(read.list, site().genuine.list);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            matches!(error, ListError::Signature { .. } | ListError::OtherSite { .. })
        }
    }
}

fn edited(edits: &[u8]) -> Vec<u8> {
    let mut bytes = site().genuine.bytes.to_vec();
    for edit in edits.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % (bytes.len() + 1);
        match edit[2] {
            0 => bytes.truncate(place),
            change => bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= change),
        }
    }
    bytes
}
