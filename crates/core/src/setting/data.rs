//! The knobs of data records: names and values in the rungs `data/NAME=VALUE…`, and the knobs that a publisher declares (`docs/knobs-data.md`).

use std::fmt;

use crate::frame::RUNG_BYTES_MAX;

/// The most knobs of a rung, and of a stream, besides `skip`.
pub const KNOBS_MAX: usize = 8;
/// The most bytes of a knob's name.
pub const KNOB_NAME_BYTES_MAX: usize = 16;
/// Values are stored in millionths, so they have at most six decimals.
const MILLIONTHS: i64 = 1_000_000;
/// The absolute value of a knob is below this.
const VALUE_MAX: i64 = 1_000_000_000;
/// The first part of a data rung's name.
pub(super) const FAMILY: &str = "data";
/// The most bytes of all knobs of a rung: [`RUNG_BYTES_MAX`] less the family and the longest skip.
const TEXT_BYTES_MAX: usize = RUNG_BYTES_MAX - "data/".len() - "/skip255".len();

/// The value of a knob: a decimal number below 10⁹ with six decimals at most. Each value has one spelling: `10`, `0.1`, `-2.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KnobValue(i64);

impl KnobValue {
    /// The value of `number`; `None` if it is out of bounds or has more than six decimals.
    pub fn from_f64(number: f64) -> Option<Self> {
        let millionths = (number * MILLIONTHS as f64).round();
        let bound = (VALUE_MAX * MILLIONTHS) as f64;
        let is_exact = millionths.abs() < bound && millionths / MILLIONTHS as f64 == number;
        is_exact.then_some(Self(millionths as i64))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0 as f64 / MILLIONTHS as f64
    }

    /// The number, if it is whole and at least 0.
    pub fn whole(self) -> Option<u32> {
        let is_whole = self.0 >= 0 && self.0 % MILLIONTHS == 0;
        is_whole.then(|| u32::try_from(self.0 / MILLIONTHS).ok())?
    }

    /// The value that a text stands for. The spelling need not be canonical.
    fn read(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text),
        };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) || fraction.len() > 6 {
            return None;
        }
        let whole: i64 = whole.parse().ok().filter(|whole| *whole < VALUE_MAX)?;
        let fraction: i64 = format!("{fraction:0<6}").parse().ok()?;
        let millionths = whole * MILLIONTHS + fraction;
        Some(Self(if is_negative { -millionths } else { millionths }))
    }
}

impl fmt::Display for KnobValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, size) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let (whole, fraction) = (size / MILLIONTHS as u64, size % MILLIONTHS as u64);
        write!(f, "{sign}{whole}")?;
        if fraction > 0 {
            write!(f, ".{}", format!("{fraction:06}").trim_end_matches('0'))?;
        }
        Ok(())
    }
}

/// Whether a text is a knob's name: `[a-z][a-z0-9_]*`, but not `skip`, which rungs of every family have.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.len() <= KNOB_NAME_BYTES_MAX
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && text != "skip"
}

/// The knobs of one rung with their values, in the order in which they are applied.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataKnobs {
    /// The canonical text, `top=30/threshold=0.1`, padded with zeros. The fixed size makes settings cheap to copy.
    text: [u8; TEXT_BYTES_MAX],
    bytes: u8,
}

impl DataKnobs {
    /// These knobs, in this order. `None` if there is no knob or more than [`KNOBS_MAX`],
    /// a name is invalid or repeated, or the rung would be longer than [`RUNG_BYTES_MAX`].
    pub fn new<'a>(knobs: impl IntoIterator<Item = (&'a str, KnobValue)>) -> Option<Self> {
        let mut names: Vec<&str> = Vec::new();
        let mut written = String::new();
        for (name, value) in knobs {
            if !is_name(name) || names.contains(&name) || names.len() == KNOBS_MAX {
                return None;
            }
            if !names.is_empty() {
                written.push('/');
            }
            written.push_str(&format!("{name}={value}"));
            names.push(name);
        }
        let mut text = [0; TEXT_BYTES_MAX];
        text.get_mut(..written.len())?.copy_from_slice(written.as_bytes());
        (!names.is_empty()).then_some(Self { text, bytes: written.len() as u8 })
    }

    /// Takes knobs from the front of `parts`, up to the first part that is no knob. The error is the invalid part.
    pub(super) fn read<'a>(
        parts: &mut std::iter::Peekable<std::str::Split<'a, char>>,
    ) -> Result<Option<Self>, &'a str> {
        let mut knobs = Vec::new();
        while let Some(part) = parts.next_if(|part| part.contains('=')) {
            let knob = part.split_once('=').and_then(|(name, value)| Some((name, KnobValue::read(value)?)));
            knobs.push(knob.ok_or(part)?);
            if Self::new(knobs.iter().copied()).is_none() {
                return Err(part);
            }
        }
        Ok(Self::new(knobs))
    }

    /// The knobs as a rung names them: `top=30/threshold=0.1`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.bytes)]).expect("names and numbers are ASCII")
    }

    /// Names and values, in the order of the rung.
    pub fn iter(&self) -> impl Iterator<Item = (&str, KnobValue)> {
        self.as_str().split('/').map(|knob| {
            let (name, value) = knob.split_once('=').expect("it was written so");
            (name, KnobValue::read(value).expect("it was written so"))
        })
    }
}

impl fmt::Debug for DataKnobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKnobs({})", self.as_str())
    }
}

/// Why a publisher may not declare such knobs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeclareError {
    /// The name is no name of a knob.
    #[error(
        "{name:?} is not a valid knob name; write a small letter, then up to 15 small letters, digits and \"_\" (skip is the knob for left-out \
         records)"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// Two knobs have this name.
    #[error("the knob {name} is declared twice; declare it once, with all its values")]
    Twice {
        /// The name.
        name: String,
    },
    /// Too many knobs.
    #[error("{count} knobs are declared; declare at most {KNOBS_MAX} besides skip")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// No value, or too many.
    #[error("the knob {name} has {count} values; give 1 to {VALUES_MAX}")]
    Values {
        /// The knob.
        name: String,
        /// How many.
        count: usize,
    },
    /// A knob has the same value twice.
    #[error("the knob {name} has the value {value} twice; give each value once")]
    ValueTwice {
        /// The knob.
        name: String,
        /// The value.
        value: KnobValue,
    },
    /// More combinations than a profile can have rungs.
    #[error(
        "these knobs have {combinations} combinations; declare fewer values: a profile holds {COMBINATIONS_MAX} rungs"
    )]
    Combinations {
        /// How many.
        combinations: u64,
    },
    /// The longest rung is too long.
    #[error(
        "the rung {rung:?} is longer than {RUNG_BYTES_MAX} bytes; shorten the names or the values of knobs"
    )]
    TooLong {
        /// The longest.
        rung: String,
    },
}

/// The most values of a knob.
pub const VALUES_MAX: usize = 32;
/// The most combinations of values, which is also the most rungs of a profile.
pub const COMBINATIONS_MAX: u64 = 4096;

/// The knobs that a publisher declares for the data records of its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredKnobs {
    /// The name and values of each knob, in the order in which they are applied.
    knobs: Vec<(String, Vec<KnobValue>)>,
    /// How many records may be left out after each one that is sent: ascending, including 0.
    skips: Vec<u8>,
}

impl DeclaredKnobs {
    /// Declares these knobs, in the order in which they are applied. `skips`: how
    /// many records may be left out after each one that is sent; 0 is always allowed.
    ///
    /// # Errors
    /// [`DeclareError`] says what is wrong and what to give instead.
    pub fn new(knobs: Vec<(String, Vec<KnobValue>)>, mut skips: Vec<u8>) -> Result<Self, DeclareError> {
        if knobs.len() > KNOBS_MAX {
            return Err(DeclareError::TooMany { count: knobs.len() });
        }
        skips.push(0);
        skips.sort_unstable();
        skips.dedup();
        let mut combinations = skips.len() as u64;
        for (place, (name, values)) in knobs.iter().enumerate() {
            if !is_name(name) {
                return Err(DeclareError::Name { name: name.escape_default().take(64).collect() });
            }
            if knobs[..place].iter().any(|(other, _)| other == name) {
                return Err(DeclareError::Twice { name: name.clone() });
            }
            if values.is_empty() || values.len() > VALUES_MAX {
                return Err(DeclareError::Values { name: name.clone(), count: values.len() });
            }
            let is_twice = |(place, value): &(usize, &KnobValue)| values[..*place].contains(value);
            if let Some((_, value)) = values.iter().enumerate().find(is_twice) {
                return Err(DeclareError::ValueTwice { name: name.clone(), value: *value });
            }
            combinations = combinations.saturating_mul(values.len() as u64);
        }
        if combinations > COMBINATIONS_MAX {
            return Err(DeclareError::Combinations { combinations });
        }
        let longest =
            |values: &[KnobValue]| values.iter().copied().max_by_key(|value| value.to_string().len());
        let worst: Vec<(&str, KnobValue)> =
            knobs.iter().filter_map(|(name, values)| Some((name.as_str(), longest(values)?))).collect();
        if !worst.is_empty() && DataKnobs::new(worst.iter().copied()).is_none() {
            let knobs: Vec<String> = worst.iter().map(|(name, value)| format!("{name}={value}")).collect();
            return Err(DeclareError::TooLong { rung: format!("{FAMILY}/{}", knobs.join("/")) });
        }
        Ok(Self { knobs, skips })
    }

    /// Whether `knobs` are exactly the declared knobs, each with a declared value.
    pub fn has(&self, knobs: &DataKnobs) -> bool {
        let mut named = knobs.iter();
        let all = self.knobs.iter().all(|(name, values)| {
            named.next().is_some_and(|(of, value)| of == name && values.contains(&value))
        });
        all && named.next().is_none()
    }

    /// Whether `skip` records may be left out after each one that is sent.
    pub fn skips(&self, skip: u8) -> bool {
        self.skips.contains(&skip)
    }

    /// All combinations of values, the last knob changing fastest. Empty if the stream has no knob besides skip.
    pub fn all(&self) -> Vec<DataKnobs> {
        let mut rows: Vec<Vec<(&str, KnobValue)>> = vec![Vec::new()];
        for (name, values) in &self.knobs {
            rows = rows
                .into_iter()
                .flat_map(|row| {
                    values.iter().map(move |value| {
                        let mut longer = row.clone();
                        longer.push((name.as_str(), *value));
                        longer
                    })
                })
                .collect();
        }
        rows.into_iter().filter_map(DataKnobs::new).collect()
    }

    /// How many records may be left out after each one that is sent: ascending, including 0.
    pub fn all_skips(&self) -> &[u8] {
        &self.skips
    }
}
