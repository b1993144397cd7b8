//! Keeps a log on disk, encrypted, so that frames outlive their broker without slowing it down.
//! `docs/log-format.md` draws the bytes.
//!
//! Nothing here touches a file; a [`Storage`] does. [`StoreWriter`] follows a log in memory and writes the
//! records that are appended there. At the next start, [`recover`] reads the log that the writer left.
//!
//! | question | where |
//! | --- | --- |
//! | which bytes are on disk? | `format.rs`, `meta.rs` |
//! | which key, which nonce? | `key.rs` |
//! | when is a record written, made durable, removed? | `writer/` |
//! | which frame of the past comes next? | `reader.rs` |
//! | which bytes are trusted after a crash? | `scan.rs` (one segment), `recovery.rs` (all segments), `tail.rs` (the end of the newest) |
//! | which records should be on disk, and which are lost? | `verify/` |
//! | who states which records are missing? | `holes.rs` |

mod config;
mod format;
mod holes;
mod key;
mod meta;
mod reader;
mod recovery;
mod scan;
mod segment;
mod status;
mod storage;
mod tail;
mod verify;
mod writer;

pub use self::config::{Durability, StoreConfig};
pub use self::format::{
    DamageKind, FORMAT_VERSION, HeaderError, MAGIC, RECORD_HEAD_BYTES, RecordHead, SEGMENT_HEADER_BYTES_MAX,
    Sealer, SegmentHeader, checksum,
};
pub use self::key::{KEY_BYTES, KEYS_MAX, KeyId, KeyRing, MasterKey, SALT_BYTES, TAG_BYTES};
pub use self::meta::STORED_SKIP_RANGES_MAX;
pub use self::reader::StoreReader;
pub use self::recovery::{
    DAMAGES_MAX, Recovery, RecoveryConfig, RecoveryError, RecoveryReport, Resume, StrangeSegment, recover,
};
pub use self::scan::{Damage, Scanned, SegmentScan, StoredRecord};
pub use self::segment::SegmentNumber;
pub use self::status::{Degraded, RecordStanding, StoreStatus};
pub use self::storage::{Bounds, Progress, Storage, StorageError, StorageErrorKind};
pub use self::verify::{
    FINDINGS_MAX, Finding, FindingKind, LogReport, RecordWords, Repair, RepairError, SegmentReport,
    VerifyConfig, repair, verify,
};
pub use self::writer::{BATCH_INTERVAL, SLOW_AFTER, StoreWriter};
