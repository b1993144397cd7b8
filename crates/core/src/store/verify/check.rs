//! Checks a whole log: which records are there, which should be there, and how many are lost.
//!
//! The records that should be there follow from three independent facts. Each segment begins where the one before it ends.
//! The state folder remembers which segments exist ([`Bounds`]), and how far the newest one had come ([`Progress`]).

use std::collections::VecDeque;

use super::report::{FINDINGS_MAX, Finding, FindingKind, LogReport, SegmentReport};
use crate::name::CameraName;
use crate::store::SegmentNumber;
use crate::store::format::{HeaderError, SegmentHeader};
use crate::store::key::KeyRing;
use crate::store::scan::{Damage, Scanned, SegmentScan, StoredRecord};
use crate::store::storage::{Bounds, Progress, Storage, StorageError};
use crate::store::tail::{TAIL_PIECES_MAX, Tail, judge_tail, was_just_begun};
use crate::units::Timestamp;

/// How to check a log.
#[derive(Clone, Copy, Debug)]
pub struct VerifyConfig<'a> {
    /// The camera.
    pub camera: &'a CameraName,
    /// The keys that the log may have been written with.
    pub keys: &'a KeyRing,
    /// Whether to read and check payloads as well.
    pub payloads: bool,
}

/// Reads and checks a whole log, even while it is being written, and changes nothing. Passes every complete
/// record to `visit`, in order.
pub fn verify<S: Storage, E: From<StorageError>>(
    storage: &mut S,
    config: VerifyConfig<'_>,
    mut visit: impl FnMut(&SegmentHeader, StoredRecord) -> Result<(), E>,
) -> Result<LogReport, E> {
    // The progress is read first, so that the segments contain at least the records that it
    // counts. The bounds are read again afterwards, because segments may expire meanwhile.
    let progress = storage.read_progress()?;
    let next = storage.read_bounds()?.map(|bounds| bounds.next);
    let mut listed = storage.list()?;
    listed.sort_unstable();
    let mut parts = lay_out(storage, config, &listed);
    let bounds = storage.read_bounds()?;
    let oldest = bounds.unwrap_or_default().oldest;
    parts.retain(|part| part.number >= oldest);
    let report = LogReport {
        bounds_known: bounds.is_some(),
        progress_known: progress.is_some(),
        ..LogReport::default()
    };
    let mut check = Check { config, bounds, progress, report, at: None, last: None, open: 0 };
    let is_live = |part: &PartOfLog| matches!(part.place, Place::Live { .. });
    let first = parts.iter().position(is_live).unwrap_or(parts.len());
    check.beginning(&parts[..first], parts.get(first));
    // If no segment can be read, all of them lie behind this empty beginning.
    let mut behind = if first < parts.len() { first } else { 0 };
    for (place, part) in parts.iter().enumerate() {
        if let Place::Live { first_index, .. } = part.place {
            check.between(first_index, part.number, &parts[behind..place]);
            behind = place + 1;
        }
        check.part(storage, part, &mut visit)?;
    }
    check.end(next, &parts[behind..]);
    Ok(check.report)
}

/// The role of a segment in the log.
enum Place {
    /// It belongs to the log and ends at `limit`, where the next one begins.
    Live { first_index: u64, limit: Option<u64> },
    /// A newer segment begins at or before its first record, and holds all of its records again.
    Superseded,
    /// It does not belong to the log of the segments after it: an older copy of the log replaced those segments.
    Older(FindingKind),
    /// It cannot be opened.
    Strange(HeaderError),
}

/// A segment and its role.
struct PartOfLog {
    number: SegmentNumber,
    bytes: u64,
    place: Place,
}

fn has_strange(parts: &[PartOfLog]) -> bool {
    parts.iter().any(|part| matches!(part.place, Place::Strange(_)))
}

/// Finds which segments belong together, as [`StoreReader`](crate::store::StoreReader) does: from the newest back.
fn lay_out(
    storage: &mut impl Storage,
    config: VerifyConfig<'_>,
    listed: &[(SegmentNumber, u64)],
) -> Vec<PartOfLog> {
    let mut parts = Vec::with_capacity(listed.len());
    let (mut newer, mut older_copy) = (None, None);
    for &(number, bytes) in listed.iter().rev() {
        let place = match SegmentScan::open(storage, config.camera, config.keys, number, bytes) {
            // The segment has expired since the segments were listed.
            Err(HeaderError::Gone) => continue,
            Err(why) => Place::Strange(why),
            Ok(scan) => {
                let (epoch, first_index) = (scan.header().epoch, scan.header().first_index);
                if let Some(next) = newer.map(|(next, _)| next).filter(|next| epoch > *next) {
                    older_copy = older_copy.or(Some(next));
                }
                match (older_copy, newer) {
                    (Some(next), _) => Place::Older(FindingKind::OlderCopy { epoch, next }),
                    (None, Some((_, limit))) if first_index >= limit => Place::Superseded,
                    (None, _) => {
                        let limit = newer.map(|(_, limit)| limit);
                        newer = Some((epoch, first_index));
                        Place::Live { first_index, limit }
                    }
                }
            }
        };
        parts.push(PartOfLog { number, bytes, place });
    }
    parts.reverse();
    parts
}

/// The state of a check, which goes from the oldest segment to the newest.
struct Check<'a> {
    config: VerifyConfig<'a>,
    bounds: Option<Bounds>,
    progress: Option<Progress>,
    report: LogReport,
    /// The last live segment that was read: its number, its size, and one past the index of its last record.
    at: Option<(SegmentNumber, u64, u64)>,
    /// The capture time of the last complete record.
    last: Option<Timestamp>,
    /// How many of the newest findings have no complete record behind them yet.
    open: usize,
}

impl Check<'_> {
    fn found(&mut self, finding: Finding) {
        self.report.wrong += 1;
        match finding.records {
            Some(records) => self.report.records_lost += records,
            None => self.report.more_may_be_lost = true,
        }
        if self.report.findings.len() < FINDINGS_MAX {
            self.report.findings.push(finding);
            self.open += 1;
        }
    }

    fn finding(&self, segment: SegmentNumber, kind: FindingKind) -> Finding {
        let after = self.last;
        Finding { segment, kind, offset: 0, bytes: 0, index: None, records: Some(0), after, before: None }
    }

    /// A complete record was read. Its capture time bounds the time of the findings before it.
    fn record(&mut self, captured: Timestamp) {
        let from = self.report.findings.len() - std::mem::take(&mut self.open);
        self.report.findings[from..].iter_mut().for_each(|finding| finding.before = Some(captured));
        self.last = Some(captured);
    }

    // ---- what should be there ---------------------------------------------------------------------------------

    /// Finds records that have not expired and are missing before the first readable segment.
    fn beginning(&mut self, strange: &[PartOfLog], first: Option<&PartOfLog>) {
        let Some((number, Place::Live { first_index, .. })) = first.map(|part| (part.number, &part.place))
        else {
            // Then everything is missing, which `end` finds.
            return;
        };
        let bounds = self.bounds.and_then(|bounds| Some((bounds.oldest, bounds.first_index?)));
        let Some((oldest, remembered)) = bounds else { return self.strange(strange, None) };
        let lost = first_index.saturating_sub(remembered);
        if has_strange(strange) {
            self.strange(strange, Some((remembered, lost)));
        } else if lost > 0 && strange.is_empty() {
            self.not_there((oldest, number), (remembered, lost));
        }
    }

    /// Finds records that are missing between the last segment that was read and the one that begins with
    /// `first_index`.
    fn between(&mut self, first_index: u64, next: SegmentNumber, strange: &[PartOfLog]) {
        if let Some((_, _, end)) = self.at {
            self.missing((end, first_index.saturating_sub(end)), next, strange);
        }
    }

    /// Reports segments that cannot be opened. `lost`: the first index and the number of the
    /// records that are missing there. They are charged to the first segment that is reported.
    fn strange(&mut self, parts: &[PartOfLog], lost: Option<(u64, u64)>) {
        let mut charged = lost;
        for part in parts {
            let Place::Strange(why) = &part.place else { continue };
            // A crash leaves a torn header of a segment that was only just created.
            let nothing_lost = match lost {
                Some((_, lost)) => lost == 0,
                None => was_just_begun(None, 0, part.bytes),
            };
            if *why == HeaderError::Torn && nothing_lost {
                continue;
            }
            let mut finding = self.finding(part.number, FindingKind::Header(why.clone()));
            finding.bytes = part.bytes;
            match (charged.take(), lost) {
                (Some((index, lost)), _) if lost > 0 => {
                    (finding.index, finding.records) = (Some(index), Some(lost));
                }
                (None, None) => finding.records = None,
                _ => {}
            }
            self.found(finding);
        }
    }

    /// Reports that records from an index on are missing between the last segment that was read and segment
    /// `next`.
    fn missing(&mut self, lost: (u64, u64), next: SegmentNumber, strange: &[PartOfLog]) {
        let Some((number, bytes, _)) = self.at else { return };
        if has_strange(strange) {
            self.strange(strange, Some(lost));
        } else if lost.1 > 0 && next > number.next() {
            self.not_there((number.next(), next), lost);
        } else if lost.1 > 0 {
            let short = self.finding(number, FindingKind::Short);
            self.found(Finding { offset: bytes, index: Some(lost.0), records: Some(lost.1), ..short });
        }
    }

    /// Reports that segments are missing, with `lost` records from `index` on.
    fn not_there(&mut self, (from, next): (SegmentNumber, SegmentNumber), (index, lost): (u64, u64)) {
        let to = SegmentNumber(next.0.saturating_sub(1)).max(from);
        let missing = self.finding(from, FindingKind::Missing { to });
        self.found(Finding { index: Some(index), records: Some(lost), ..missing });
    }

    /// Finds records that were written and are missing behind all readable ones.
    fn end(&mut self, next: Option<SegmentNumber>, strange: &[PartOfLog]) {
        let Some(progress) = self.progress else { return self.end_unknown(next, strange) };
        let next = progress.segment.next().max(next.unwrap_or_default());
        let reached = progress.reached();
        if let Some((_, _, end)) = self.at {
            return self.missing((end, reached.saturating_sub(end)), next, strange);
        }
        let bounds = self.bounds.unwrap_or_default();
        let first = bounds.first_index.unwrap_or(0);
        let lost = (first, reached.saturating_sub(first));
        if has_strange(strange) {
            self.strange(strange, Some(lost));
        } else if lost.1 > 0 {
            self.not_there((bounds.oldest, next), lost);
        }
    }

    /// Finds missing segments behind all readable ones if no progress is known. Lost
    /// records cannot be counted, and missing segments only if the bounds are known.
    fn end_unknown(&mut self, next: Option<SegmentNumber>, strange: &[PartOfLog]) {
        self.strange(strange, None);
        let newest = strange.last().map(|part| part.number).or(self.at.map(|(number, ..)| number));
        let from = newest.map_or(SegmentNumber(0), SegmentNumber::next);
        if let Some(next) = next.filter(|next| *next > from) {
            let to = SegmentNumber(next.0 - 1);
            let missing = self.finding(from, FindingKind::Missing { to });
            self.found(Finding { records: None, ..missing });
        }
    }

    // ---- what is there ----------------------------------------------------------------------------------------

    fn part<S: Storage, E: From<StorageError>>(
        &mut self,
        storage: &mut S,
        part: &PartOfLog,
        visit: &mut impl FnMut(&SegmentHeader, StoredRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let &PartOfLog { number, bytes, ref place } = part;
        let mut report =
            SegmentReport { number, bytes, records: 0, records_lost: 0, bytes_unreadable: 0, captured: None };
        match place {
            Place::Live { limit, .. } => {
                let lost = self.report.records_lost;
                self.live(storage, (number, bytes, *limit), &mut report, visit)?;
                report.records_lost = self.report.records_lost - lost;
            }
            Place::Superseded => self.report.superseded_bytes += bytes,
            Place::Older(why) => {
                let mut finding = self.finding(number, why.clone());
                (finding.bytes, finding.records) = (bytes, None);
                self.found(finding);
                report.bytes_unreadable = bytes;
            }
            // A strange segment is reported where its records are missing.
            Place::Strange(_) => report.bytes_unreadable = bytes,
        }
        self.report.segments.push(report);
        Ok(())
    }

    fn live<S: Storage, E: From<StorageError>>(
        &mut self,
        storage: &mut S,
        (number, bytes, limit): (SegmentNumber, u64, Option<u64>),
        report: &mut SegmentReport,
        visit: &mut impl FnMut(&SegmentHeader, StoredRecord) -> Result<(), E>,
    ) -> Result<(), E> {
        let VerifyConfig { camera, keys, payloads } = self.config;
        let mut scan = match SegmentScan::open(storage, camera, keys, number, bytes) {
            Ok(scan) => scan,
            // The segment could be opened a moment ago. It has expired meanwhile, with all segments before it.
            Err(_) => {
                self.at = None;
                return Ok(());
            }
        };
        if let Some(place) = scan.mended() {
            let finding = self.finding(number, FindingKind::Mended { place });
            self.found(finding);
        }
        let header = scan.header().clone();
        let mut end = header.first_index;
        // Damage of the newest segment that has no complete record behind it yet.
        let mut tail: VecDeque<Damage> = VecDeque::new();
        while limit.is_none_or(|limit| scan.index() < limit) {
            match scan.next(storage, payloads) {
                None => break,
                Some(Scanned::Record(record)) => {
                    for damage in tail.drain(..) {
                        self.damage(&damage, limit, report);
                    }
                    let captured = record.meta.captured;
                    report.records += 1;
                    report.captured = Some((report.captured.map_or(captured, |(first, _)| first), captured));
                    end = record.index + 1;
                    self.record(captured);
                    visit(&header, record)?;
                }
                Some(Scanned::Damaged(damage)) => {
                    if limit.is_some() {
                        end = end.max(self.damage(&damage, limit, report));
                        continue;
                    }
                    tail.push_back(damage);
                    if tail.len() > TAIL_PIECES_MAX
                        && let Some(damage) = tail.pop_front()
                    {
                        self.damage(&damage, limit, report);
                    }
                }
            }
        }
        for damage in tail {
            end = end.max(self.tail(&damage, report));
        }
        self.report.superseded_bytes += bytes.saturating_sub(scan.offset());
        self.at = Some((number, bytes, end));
        Ok(())
    }

    /// Records damage at the end of the newest segment. Returns one past the index of the last record that is
    /// lost with it.
    fn tail(&mut self, damage: &Damage, report: &mut SegmentReport) -> u64 {
        if judge_tail(self.progress.as_ref(), damage) == Tail::Torn {
            self.report.torn_bytes += damage.bytes;
            return 0;
        }
        let reached = self.progress.map(|progress| progress.reached().max(damage.index + 1));
        self.damage(damage, reached, report)
    }

    /// Records damage in a segment. Returns one past the index of the last record that is lost with it, as
    /// far as is known.
    fn damage(&mut self, damage: &Damage, limit: Option<u64>, report: &mut SegmentReport) -> u64 {
        let lost = damage.records(limit);
        report.bytes_unreadable += damage.bytes;
        let mut finding = self.finding(damage.segment, FindingKind::Damaged(damage.kind));
        (finding.offset, finding.bytes) = (damage.offset, damage.bytes);
        (finding.index, finding.records) = (Some(damage.index), lost);
        self.found(finding);
        damage.index + lost.unwrap_or(0)
    }
}
