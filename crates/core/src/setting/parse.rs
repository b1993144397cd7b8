//! Parses the name of a rung.

use std::iter::Peekable;
use std::str::{FromStr, Split};

use super::data::{self, DataKnobs};
use super::{
    Artefacts, BoxBlur, ColourSpace, Form, H264, Jpeg, Knobs, Percent, Quality, Quantiser, Sampling, Scale,
    Setting, StillCoding, Width,
};
use crate::frame::Rung;

/// Why a text is not the name of a rung.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingError {
    /// The first part is no family of rungs.
    #[error("unknown rung {text:?}; names begin with original, jpeg, tiles, h264, knobs or data")]
    Family {
        /// The text that was refused.
        text: String,
    },
    /// A required part is missing.
    #[error("the rung {text:?} lacks {missing}; the form is {form}")]
    Missing {
        /// The text that was refused.
        text: String,
        /// The missing part.
        missing: &'static str,
        /// The form of names of this family.
        form: &'static str,
    },
    /// A part that is unknown, out of bounds or in the wrong place.
    #[error(
        "the part {part:?} of the rung {text:?} is unknown, out of range or out of place; the form is {form}"
    )]
    Part {
        /// The text that was refused.
        text: String,
        /// The part.
        part: String,
        /// The form of names of this family.
        form: &'static str,
    },
    /// The name is another spelling of a setting's canonical name.
    #[error("the rung {text:?} is not in canonical form; write {canonical:?}")]
    NotCanonical {
        /// The text that was refused.
        text: String,
        /// The setting's canonical name.
        canonical: String,
    },
}

const ORIGINAL: &str = "original[/skipN]";
const JPEG: &str = "jpeg[/wWIDTH]/qQUALITY/gray|420|422|444[/skipN]";
const TILES: &str = "tiles[/wWIDTH]/qQUALITY/gray|420|422|444[/skipN]";
const H264_FORM: &str = "h264[/wWIDTH]/qQUANTISER (10 to 51)[/skipN]";
const KNOBS: &str = "knobs[/s68|s50|s33|s25][/gray|hsv|lab|luv][/blur5|blur8|blur10|blur15][/moving|contours]\
                     [/diffPERCENT]/png|qQUALITY[/skipN]";
const DATA: &str = "data/NAME=NUMBER[/NAME=NUMBER…][/skipN]";

impl Rung {
    /// The setting that this rung names.
    ///
    /// # Errors
    /// [`SettingError`] for a name that this version does not know; a newer peer may have given it.
    pub fn setting(&self) -> Result<Setting, SettingError> {
        self.as_str().parse()
    }

    /// One in this many published frames is sent at this rung. 1 if the name is unknown.
    pub fn one_in(&self) -> u32 {
        if !self.as_str().contains("/skip") {
            return 1;
        }
        self.setting().map_or(1, |setting| setting.one_in())
    }
}

impl FromStr for Setting {
    type Err = SettingError;

    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (family, _) = text.split_once('/').unwrap_or((text, ""));
        let form_of = match family {
            Rung::ORIGINAL => ORIGINAL,
            "jpeg" => JPEG,
            "tiles" => TILES,
            "h264" => H264_FORM,
            "knobs" => KNOBS,
            data::FAMILY => DATA,
            _ => return Err(SettingError::Family { text: text.into() }),
        };
        let mut parts = Parts { text, form: form_of, rest: text.split('/').peekable() };
        parts.rest.next();
        let form = match family {
            "jpeg" => Form::Jpeg(parts.jpeg()?),
            "tiles" => Form::Tiles(parts.jpeg()?),
            "h264" => Form::H264(H264 {
                width: parts.width(),
                quantiser: parts.required("the quantiser", |part| Quantiser::new(number(part, "q")?))?,
            }),
            "knobs" => Form::Knobs(parts.knobs()?),
            data::FAMILY => Form::Data(parts.data()?),
            _ => Form::Original,
        };
        let skip = parts.optional(|part| number(part, "skip")).unwrap_or(0);
        if let Some(part) = parts.rest.next() {
            return Err(SettingError::Part { text: text.into(), part: part.into(), form: form_of });
        }
        let setting = Self { form, skip };
        let canonical = setting.to_string();
        if canonical != text {
            return Err(SettingError::NotCanonical { text: text.into(), canonical });
        }
        Ok(setting)
    }
}

/// The parts of a name that are not parsed yet.
struct Parts<'a> {
    text: &'a str,
    form: &'static str,
    rest: Peekable<Split<'a, char>>,
}

impl Parts<'_> {
    /// Takes the next part if `read` accepts it.
    fn optional<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let value = self.rest.peek().and_then(|part| read(part))?;
        self.rest.next();
        Some(value)
    }

    fn required<T>(
        &mut self,
        missing: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, SettingError> {
        let (text, form) = (self.text, self.form);
        match self.rest.next() {
            None => Err(SettingError::Missing { text: text.into(), missing, form }),
            Some(part) => {
                read(part).ok_or_else(|| SettingError::Part { text: text.into(), part: part.into(), form })
            }
        }
    }

    fn width(&mut self) -> Option<Width> {
        self.optional(|part| Width::new(number(part, "w")?))
    }

    fn jpeg(&mut self) -> Result<Jpeg, SettingError> {
        Ok(Jpeg {
            width: self.width(),
            quality: self.required("the quality", |part| Quality::new(number(part, "q")?))?,
            sampling: self.required("the colour subsampling", |part| {
                Sampling::ALL.into_iter().find(|sampling| sampling.name() == part)
            })?,
        })
    }

    fn data(&mut self) -> Result<DataKnobs, SettingError> {
        let (text, form) = (self.text, self.form);
        let knobs = DataKnobs::read(&mut self.rest).map_err(|part| SettingError::Part {
            text: text.into(),
            part: part.into(),
            form,
        })?;
        knobs.ok_or_else(|| SettingError::Missing { text: text.into(), missing: "a knob", form })
    }

    fn knobs(&mut self) -> Result<Knobs, SettingError> {
        let named = |part: &str, name: Option<&str>| name == Some(part);
        Ok(Knobs {
            scale: self
                .optional(|part| Scale::ALL.into_iter().find(|scale| named(part, scale.name())))
                .unwrap_or_default(),
            colour: self
                .optional(|part| ColourSpace::ALL.into_iter().find(|space| named(part, space.name())))
                .unwrap_or_default(),
            blur: self.optional(|part| {
                let side: u32 = number(part, "blur")?;
                BoxBlur::ALL.into_iter().find(|blur| blur.side() == side)
            }),
            artefacts: self
                .optional(|part| Artefacts::ALL.into_iter().find(|kind| named(part, kind.name())))
                .unwrap_or_default(),
            difference: self.optional(|part| Percent::new(number(part, "diff")?)),
            coding: self.required("png or a quality", |part| match part {
                "png" => Some(StillCoding::Png),
                _ => Some(StillCoding::Jpeg(Quality::new(number(part, "q")?)?)),
            })?,
        })
    }
}

/// The number after `prefix`, if `part` consists of just these two.
fn number<T: FromStr>(part: &str, prefix: &str) -> Option<T> {
    let digits = part.strip_prefix(prefix)?;
    // `parse` alone would accept a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
