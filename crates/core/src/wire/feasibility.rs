//! Encodes what a camera can do for the leading contracts.

use super::codec::{Reader, WireError, Write};
use crate::controller::Calibration;
use crate::profile::{ProfileHash, SizeDrift};
use crate::units::BitsPerSecond;

/// The state of the profile that the leading contracts name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ProfileUse {
    /// The contracts name no profile, or no contract has a floor.
    #[default]
    None = 0,
    /// The camera does not have the profile yet. It uses the default ladder, whose accuracy is unknown.
    Fetching = 1,
    /// The camera uses the profile's rungs.
    InUse = 2,
    /// The profile was made with frames of another size.
    OtherSize = 3,
    /// The camera can make none of the profile's rungs.
    NoRung = 4,
    /// The edge does not have the profile, or the camera could not read it.
    Unreadable = 5,
}

impl ProfileUse {
    /// All states, in the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Fetching, Self::InUse, Self::OtherSize, Self::NoRung, Self::Unreadable];
}

/// What a camera can do for the leading contracts, for operators and for the states of contracts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FeasibilityReport {
    /// The rate of the link, if it was measured.
    pub link_rate: Option<BitsPerSecond>,
    /// The present size of a frame at the cheapest rung that keeps the floor. `None`: there is no floor, or no rung keeps it.
    pub floor_bytes: Option<f64>,
    /// The accuracy of the best rung that the camera can make, by the profile.
    pub best_accuracy: Option<f64>,
    /// Whether, at the last frame that waited, no rung that keeps the floor was on time often enough.
    pub infeasible: bool,
    /// Whether the source's own video is interrupted: the camera encodes its frames at rungs, because the edge lacks
    /// a frame that the next one needs, or the link has no room. The video continues at one of its key frames.
    pub interrupted: bool,
    /// The state of the profile.
    pub profile_use: ProfileUse,
    /// The hash of the profile.
    pub profile: Option<ProfileHash>,
    /// How the sizes of frames differ from those of the profile. `None`: they do not differ, or it is unknown.
    pub drift: Option<SizeDrift>,
    /// How well the policy predicts which frames are on time, with shares in millionths. 0 frames: the policy does not predict.
    pub calibration: Calibration,
}

const FLAG_INFEASIBLE: u8 = 1;
const FLAG_PROFILE: u8 = 2;
const FLAG_INTERRUPTED: u8 = 4;
/// Shares are sent in millionths.
const SHARE_PARTS: f64 = 1e6;

impl FeasibilityReport {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.f64(self.link_rate.map_or(f64::NAN, |rate| rate.0));
        out.f64(self.floor_bytes.unwrap_or(f64::NAN));
        out.f64(self.best_accuracy.unwrap_or(f64::NAN));
        let flags = [
            (self.infeasible, FLAG_INFEASIBLE),
            (self.profile.is_some(), FLAG_PROFILE),
            (self.interrupted, FLAG_INTERRUPTED),
        ];
        out.u8(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        out.u8(self.profile_use as u8);
        out.extend_from_slice(&self.profile.unwrap_or_default());
        out.f64(self.drift.map_or(f64::NAN, |drift| drift.measured));
        out.f64(self.drift.map_or(f64::NAN, |drift| drift.profiled));
        let Calibration { frames, expected_late, actual_late } = self.calibration;
        let parts = |share: f64| (share.clamp(0.0, 1.0) * SHARE_PARTS).round() as u32;
        out.u32(u32::try_from(frames).unwrap_or(u32::MAX));
        out.u32(parts(expected_late));
        out.u32(parts(actual_late));
    }

    /// An impossible value is decoded as unknown.
    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let positive = |value: f64| (value > 0.0 && value.is_finite()).then_some(value);
        let link_rate = positive(r.f64("link_rate")?).map(BitsPerSecond);
        let floor_bytes = positive(r.f64("floor_bytes")?);
        let best_accuracy = Some(r.f64("best_accuracy")?).filter(|best| (0.0..=1.0).contains(best));
        let flags = r.u8("flags")?;
        let code = r.u8("profile_use")?;
        let hash = r.fixed::<32>("profile")?;
        let measured = positive(r.f64("drift_measured")?);
        let profiled = positive(r.f64("drift_profiled")?);
        let drift = measured.zip(profiled).map(|(measured, profiled)| SizeDrift { measured, profiled });
        let frames = u64::from(r.u32("predicted_frames")?);
        let expected_late = (f64::from(r.u32("expected_late")?) / SHARE_PARTS).min(1.0);
        let actual_late = (f64::from(r.u32("actual_late")?) / SHARE_PARTS).min(1.0);
        Ok(Self {
            link_rate,
            floor_bytes,
            best_accuracy,
            infeasible: flags & FLAG_INFEASIBLE != 0,
            interrupted: flags & FLAG_INTERRUPTED != 0,
            profile_use: ProfileUse::ALL.into_iter().find(|known| *known as u8 == code).unwrap_or_default(),
            profile: (flags & FLAG_PROFILE != 0).then_some(hash),
            drift,
            calibration: Calibration { frames, expected_late, actual_late },
        })
    }
}
