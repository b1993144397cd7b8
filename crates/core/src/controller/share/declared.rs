//! Reads the operator's declaration of which cameras share a channel. The edge cannot see it.

use std::fmt;
use std::str::FromStr;

use super::Goal;
use crate::name::{CameraName, CameraPattern, NameError};

/// The most channels that may be declared to an edge.
pub const CHANNELS_MAX: usize = 64;
/// The most patterns of one channel.
pub const CHANNEL_PATTERNS_MAX: usize = 64;
/// The most bytes of a channel's name.
pub const CHANNEL_NAME_BYTES_MAX: usize = 64;

/// A channel and the cameras that share it.
///
/// As text: `NAME=PATTERN[,PATTERN…]`, such as `hall=dock/*,yard/cam1`. With another goal than
/// [`Goal::MaxMin`], `NAME:sum=PATTERN` or `NAME:bandwidth=PATTERN`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredChannel {
    name: String,
    goal: Goal,
    cameras: Vec<CameraPattern>,
}

impl DeclaredChannel {
    /// A channel of the cameras that the patterns select. `head` is `NAME` or `NAME:GOAL`.
    ///
    /// # Errors
    /// The name is not valid, there is no such goal, or there are no patterns, too many, or invalid ones.
    pub fn of<'a>(head: &str, patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, ChannelError> {
        let (name, goal) = match head.split_once(':') {
            Some((name, goal)) => (name, Some(goal)),
            None => (head, None),
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > CHANNEL_NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(ChannelError::Name { name: shown(name) });
        }
        let name = name.to_owned();
        let goal = match goal {
            None | Some("max-min") => Goal::MaxMin,
            Some("sum") => Goal::Sum,
            Some("bandwidth") => Goal::Bandwidth,
            Some(goal) => return Err(ChannelError::Goal { name, goal: shown(goal) }),
        };
        let mut cameras = Vec::new();
        for pattern in patterns {
            if cameras.len() == CHANNEL_PATTERNS_MAX {
                return Err(ChannelError::TooManyPatterns { name });
            }
            let pattern: Result<CameraPattern, NameError> = pattern.parse();
            cameras.push(pattern.map_err(|source| ChannelError::Pattern { name: name.clone(), source })?);
        }
        if cameras.is_empty() {
            return Err(ChannelError::NoPatterns { name });
        }
        Ok(Self { name, goal, cameras })
    }

    /// The channel's name, for display.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which camera gets the next upgrade.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Whether this camera is on the channel.
    pub fn has(&self, camera: &CameraName) -> bool {
        self.cameras.iter().any(|pattern| pattern.matches(camera))
    }
}

/// Why a channel was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    /// No `=`.
    #[error("the channel {text:?} names no cameras; write NAME=PATTERN, such as hall=dock/*")]
    NoCameras {
        /// The refused text.
        text: String,
    },
    /// The name is empty, is too long, or has a character that is not allowed.
    #[error(
        "the channel name {name:?} is not one to {CHANNEL_NAME_BYTES_MAX} letters, digits, '.', '_' and '-'; \
         choose another, such as hall"
    )]
    Name {
        /// The refused name.
        name: String,
    },
    /// No patterns.
    #[error("the channel {name} names no cameras; give it a pattern, such as dock/*")]
    NoPatterns {
        /// The channel.
        name: String,
    },
    /// The goal does not exist.
    #[error(
        "the channel {name} has the unknown goal {goal:?}; use max-min (the worst camera first), sum (the best gain first) or bandwidth (the same \
         rate for all)"
    )]
    Goal {
        /// The channel.
        name: String,
        /// The refused goal.
        goal: String,
    },
    /// A pattern is not valid.
    #[error("the channel {name}: {source}")]
    Pattern {
        /// The channel.
        name: String,
        /// Why not.
        source: NameError,
    },
    /// More patterns than [`CHANNEL_PATTERNS_MAX`].
    #[error(
        "the channel {name} has more than {CHANNEL_PATTERNS_MAX} patterns; a pattern such as dock/** selects many cameras"
    )]
    TooManyPatterns {
        /// The channel.
        name: String,
    },
    /// More channels than [`CHANNELS_MAX`].
    #[error("there are {channels} channels, more than {CHANNELS_MAX}; leave out channels of a single camera")]
    TooMany {
        /// How many.
        channels: usize,
    },
    /// Two channels of one name.
    #[error("the channel {name} is declared twice; declare it once, with all its patterns")]
    Twice {
        /// The channel.
        name: String,
    },
}

impl FromStr for DeclaredChannel {
    type Err = ChannelError;

    fn from_str(text: &str) -> Result<Self, ChannelError> {
        let (head, patterns) =
            text.split_once('=').ok_or_else(|| ChannelError::NoCameras { text: shown(text) })?;
        // An empty text splits into one empty pattern, whose error would not say what is missing.
        Self::of(head, patterns.split(',').filter(|_| !patterns.is_empty()))
    }
}

impl fmt::Display for DeclaredChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = match self.goal {
            Goal::MaxMin => "",
            Goal::Sum => ":sum",
            Goal::Bandwidth => ":bandwidth",
        };
        let cameras: Vec<&str> = self.cameras.iter().map(CameraPattern::as_str).collect();
        write!(f, "{}{goal}={}", self.name, cameras.join(","))
    }
}

/// The channels of an edge, each with a unique name. Default: none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Channels(Vec<DeclaredChannel>);

impl Channels {
    /// Collects channels. A camera that several channels select belongs to the first.
    ///
    /// # Errors
    /// There are too many channels, or two have the same name.
    pub fn new(channels: Vec<DeclaredChannel>) -> Result<Self, ChannelError> {
        if channels.len() > CHANNELS_MAX {
            return Err(ChannelError::TooMany { channels: channels.len() });
        }
        for (place, channel) in channels.iter().enumerate() {
            if channels[..place].iter().any(|other| other.name == channel.name) {
                return Err(ChannelError::Twice { name: channel.name.clone() });
            }
        }
        Ok(Self(channels))
    }

    /// All channels, in their order.
    pub fn as_slice(&self) -> &[DeclaredChannel] {
        &self.0
    }

    /// The index of the channel that a camera is on.
    pub fn of(&self, camera: &CameraName) -> Option<usize> {
        self.0.iter().position(|channel| channel.has(camera))
    }
}

/// The first 100 characters of a refused text, for an error message.
fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_is_read_as_it_is_written() {
        for text in ["hall=dock/*,yard/cam1", "5-GHz:sum=**", "hall:bandwidth=dock/*"] {
            let channel: DeclaredChannel = text.parse().expect("a channel");
            assert_eq!(channel.to_string(), text);
        }
        let fair: DeclaredChannel = "hall:max-min=dock/*".parse().expect("a channel");
        assert_eq!((fair.goal(), fair.to_string().as_str()), (Goal::MaxMin, "hall=dock/*"));
        let camera = |name: &str| name.parse::<CameraName>().expect("a name");
        assert!(fair.has(&camera("dock/cam1")) && !fair.has(&camera("yard/cam1")));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_remedy() {
        let many = format!("a={}", vec!["b"; CHANNEL_PATTERNS_MAX + 1].join(","));
        for (text, says) in [
            ("hall", "names no cameras; write NAME=PATTERN"),
            ("hall=", "the channel hall names no cameras; give it a pattern, such as dock/*"),
            ("=dock/*", "the channel name \"\""),
            ("große=dock/*", "the channel name"),
            ("hall:fair=dock/*", "use max-min (the worst camera first), sum (the best gain first) or"),
            ("hall=dock/*,", "the channel hall: camera name \"\" has an empty segment"),
            ("hall=dock*", "the channel hall: pattern \"dock*\" mixes"),
            (many.as_str(), "more than 64 patterns"),
        ] {
            let error = text.parse::<DeclaredChannel>().expect_err(text).to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let channel = |name: &str| format!("{name}=dock/*").parse::<DeclaredChannel>().expect("a channel");
        assert_eq!(Channels::new(vec![channel("a"); 2]), Err(ChannelError::Twice { name: "a".into() }));
        let many: Vec<_> = (0..=CHANNELS_MAX).map(|number| channel(&format!("a{number}"))).collect();
        assert!(matches!(Channels::new(many), Err(ChannelError::TooMany { .. })));
        let channels = Channels::new(vec![channel("a"), channel("b")]).expect("two names");
        assert_eq!(channels.of(&"dock/cam1".parse().expect("a name")), Some(0), "the first one counts");
    }
}
