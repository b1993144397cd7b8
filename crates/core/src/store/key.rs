//! Keys: one master key for a host, one derived key for each segment, one nonce for each sealed part.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use super::SegmentNumber;
use crate::frame::Epoch;
use crate::name::CameraName;

/// Bytes of a master key and of the keys that are derived from it.
pub const KEY_BYTES: usize = 32;
/// Random bytes in a segment's header, from which its key is derived with the master key.
pub const SALT_BYTES: usize = 32;
/// Bytes of an authentication tag.
pub const TAG_BYTES: usize = 16;
/// The most keys in a ring.
pub const KEYS_MAX: usize = 64;

/// The key from which all keys of a host's logs are derived. Its `Debug` output shows only its name.
#[derive(Clone, PartialEq, Eq)]
pub struct MasterKey([u8; KEY_BYTES]);

impl MasterKey {
    /// A key of 32 bytes, which have to be random.
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The key's name, which reveals nothing about the key.
    pub fn id(&self) -> KeyId {
        let mut id = [0; 8];
        derive(&self.0, b"", &[b"mez log key id"], &mut id);
        KeyId(id)
    }

    /// The key for logs of notes: HKDF of this key. A sealed note never opens as a frame.
    #[must_use]
    pub fn for_notes(&self) -> Self {
        let mut key = [0; KEY_BYTES];
        derive(&self.0, b"", &[b"mez notes"], &mut key);
        Self(key)
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MasterKey({})", self.id())
    }
}

/// The name of a master key, which segments carry in the clear: HKDF of the key, cut to eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 8]);

impl fmt::Display for KeyId {
    /// `3f0a91c2b4d5e6f7`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The master keys that a host has: the newest writes, all of them read.
#[derive(Clone, Debug)]
pub struct KeyRing {
    /// At least one; the newest last.
    keys: Vec<MasterKey>,
}

impl KeyRing {
    /// A ring of `keys`, the newest last; `None` without any, or with more than [`KEYS_MAX`].
    pub fn new(keys: Vec<MasterKey>) -> Option<Self> {
        (1..=KEYS_MAX).contains(&keys.len()).then_some(Self { keys })
    }

    /// The key that new segments are written with.
    pub fn newest(&self) -> &MasterKey {
        self.keys.last().expect("`new` takes no ring without keys")
    }

    /// The key with this name. `None` if it is not in the ring.
    pub fn find(&self, id: KeyId) -> Option<&MasterKey> {
        self.keys.iter().find(|key| key.id() == id)
    }

    /// The keys for logs of notes ([`MasterKey::for_notes`]).
    #[must_use]
    pub fn for_notes(&self) -> Self {
        Self { keys: self.keys.iter().map(MasterKey::for_notes).collect() }
    }

    /// The names of all keys, the newest last.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> + '_ {
        self.keys.iter().map(MasterKey::id)
    }
}

/// Where a sealed part belongs. Each part of a segment is sealed with a nonce of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Part {
    /// The description of a record's frame.
    Meta = 0,
    /// A record's payload.
    Payload = 1,
    /// The segment's header, which is authenticated and not encrypted.
    Header = 2,
}

/// The key of one segment, and the associated data that binds parts to their place.
pub(super) struct SegmentKey {
    key: LessSafeKey,
    /// Camera, epoch and segment: the associated data up to the index.
    place: Vec<u8>,
}

impl SegmentKey {
    /// HKDF-SHA256(master key, salt, info = camera, epoch, segment).
    pub(super) fn derive(
        master: &MasterKey,
        salt: &[u8; SALT_BYTES],
        camera: &CameraName,
        epoch: Epoch,
        segment: SegmentNumber,
    ) -> Self {
        let name = camera.as_str().as_bytes();
        let length = u16::try_from(name.len()).expect("a camera's name is below 64 KiB");
        let mut place = Vec::with_capacity(name.len() + 26);
        place.extend_from_slice(&length.to_le_bytes());
        place.extend_from_slice(name);
        place.extend_from_slice(&epoch.0.to_le_bytes());
        place.extend_from_slice(&segment.0.to_le_bytes());
        let mut key = [0; KEY_BYTES];
        derive(&master.0, salt, &[&place], &mut key);
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("the key has the length of the cipher");
        Self { key: LessSafeKey::new(key), place }
    }

    /// Encrypts `bytes` in place and returns their tag.
    pub(super) fn seal(&self, part: Part, index: u64, bytes: &mut [u8]) -> Tag {
        let tag =
            self.key.seal_in_place_separate_tag(nonce(part, index), Aad::from(self.place(index)), bytes);
        tag.expect("a part is far below AES-GCM's limit of 64 GiB")
    }

    /// Decrypts `sealed`, which ends with its tag, in place. `None` if it was not sealed at this place with this key.
    pub(super) fn open<'a>(&self, part: Part, index: u64, sealed: &'a mut [u8]) -> Option<&'a mut [u8]> {
        self.key.open_in_place(nonce(part, index), Aad::from(self.place(index)), sealed).ok()
    }

    /// The tag that authenticates `header`, which stays readable.
    pub(super) fn seal_header(&self, header: &[u8]) -> Tag {
        let tag = self.key.seal_in_place_separate_tag(nonce(Part::Header, 0), Aad::from(header), &mut []);
        tag.expect("a header is far below AES-GCM's limit")
    }

    /// Whether `tag` authenticates `header`.
    pub(super) fn is_genuine(&self, header: &[u8], tag: &[u8]) -> bool {
        let mut tag = tag.to_vec();
        self.key.open_in_place(nonce(Part::Header, 0), Aad::from(header), &mut tag).is_ok()
    }

    fn place(&self, index: u64) -> Vec<u8> {
        [&self.place[..], &index.to_le_bytes()].concat()
    }
}

/// The part in 32 bits, then the index in 64, both little-endian: no two parts of a segment share a nonce.
fn nonce(part: Part, index: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&(part as u32).to_le_bytes());
    bytes[4..].copy_from_slice(&index.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn derive(secret: &[u8], salt: &[u8], info: &[&[u8]], out: &mut [u8]) {
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    let expanded = extracted.expand(info, Length(out.len())).expect("far below HKDF's limit of 8,160 bytes");
    expanded.fill(out).expect("the length is the one that was asked for");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(master: u8, salt: u8, camera: &str, epoch: u64, segment: u64) -> SegmentKey {
        SegmentKey::derive(
            &MasterKey::new([master; KEY_BYTES]),
            &[salt; SALT_BYTES],
            &camera.parse().unwrap(),
            Epoch(epoch),
            SegmentNumber(segment),
        )
    }

    #[test]
    fn what_is_sealed_opens_only_at_its_place_with_its_key() {
        let seal = segment(1, 2, "dock/cam1", 3, 4);
        let mut sealed = b"a frame".to_vec();
        let tag = seal.seal(Part::Payload, 5, &mut sealed);
        sealed.extend_from_slice(tag.as_ref());
        assert!(!sealed.starts_with(b"a frame"));

        let opens = |key: &SegmentKey, part, index| {
            key.open(part, index, &mut sealed.clone()).map(|plain| plain.to_vec())
        };
        assert_eq!(opens(&seal, Part::Payload, 5).as_deref(), Some(&b"a frame"[..]));
        assert_eq!(opens(&seal, Part::Payload, 6), None, "another index");
        assert_eq!(opens(&seal, Part::Meta, 5), None, "another part");
        for (other, what) in [
            (segment(9, 2, "dock/cam1", 3, 4), "master key"),
            (segment(1, 9, "dock/cam1", 3, 4), "salt"),
            (segment(1, 2, "dock/cam2", 3, 4), "camera"),
            (segment(1, 2, "dock/cam1", 9, 4), "epoch"),
            (segment(1, 2, "dock/cam1", 3, 9), "segment"),
        ] {
            assert_eq!(opens(&other, Part::Payload, 5), None, "another {what}");
        }
    }

    /// RFC 5869, test case 1, cut to the requested length.
    #[test]
    fn the_derivation_is_hkdf_with_sha_256() {
        let salt: Vec<u8> = (0..=12).collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let mut out = [0; 16];
        derive(&[0x0b; 22], &salt, &[&info], &mut out);
        assert_eq!(
            out,
            [0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a, 0x90, 0x43, 0x4f, 0x64, 0xd0, 0x36, 0x2f, 0x2a]
        );
    }

    #[test]
    fn a_ring_writes_with_its_newest_key_and_finds_the_older_ones() {
        let key = |byte| MasterKey::new([byte; KEY_BYTES]);
        let ring = KeyRing::new(vec![key(1), key(2)]).unwrap();
        assert_eq!(ring.newest(), &key(2));
        assert_eq!(ring.find(key(1).id()), Some(&key(1)));
        assert_eq!(ring.find(key(3).id()), None);
        assert!(KeyRing::new(Vec::new()).is_none());
        assert!(!format!("{ring:?}").contains("01, 01"), "a key shows itself");
    }
}
