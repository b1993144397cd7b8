//! Encodes a picture with at most a given number of bytes, in few tries.

use bytes::Bytes;

/// Maximum number of times that one picture is encoded. Each takes milliseconds.
const TRIES_MAX: usize = 3;

/// Describes a list of settings of an encoder, the best first.
#[derive(Debug, Clone, Copy)]
pub struct Ladder {
    /// Number of settings.
    pub places: usize,
    /// How many settings further down the bytes are halved.
    pub per_halving: f64,
    /// If the last picture used less than this part of its limit, the next better setting is tried.
    pub better_below: f64,
}

/// How the last picture was encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Last {
    /// The setting.
    pub place: usize,
    /// Its bytes, relative to the limit; 0 without a limit.
    pub part: f64,
}

impl Ladder {
    /// Encodes a picture with at most `bytes_max` bytes if a setting allows that. Returns also how it was encoded, for the next picture.
    /// The picture may have more bytes: if the last setting has, or if the limit has become much lower and three tries were not
    /// enough. The next picture begins where this one ended.
    ///
    /// # Errors
    /// Those of `encode`, which encodes at a setting.
    pub fn fit<E>(
        &self,
        last: Last,
        bytes_max: Option<u32>,
        mut encode: impl FnMut(usize) -> Result<Bytes, E>,
    ) -> Result<(Bytes, Last), E> {
        let mut place = if last.part < self.better_below { last.place.saturating_sub(1) } else { last.place };
        let mut tries = 1;
        loop {
            let coded = encode(place)?;
            let part = bytes_max.map_or(0.0, |most| coded.len() as f64 / f64::from(most.max(1)));
            if part <= 1.0 || tries == TRIES_MAX || place + 1 >= self.places {
                return Ok((coded, Last { place, part }));
            }
            let steps = (self.per_halving * part.log2()).ceil().max(1.0) as usize;
            (place, tries) = ((place + steps).min(self.places - 1), tries + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LADDER: Ladder = Ladder { places: 6, per_halving: 1.0, better_below: 0.4 };

    /// A picture of 1024 bytes at the best setting, half of it at each next one.
    fn encode(place: usize) -> Result<Bytes, ()> {
        Ok(vec![0; 1024 >> place].into())
    }

    #[test]
    fn the_best_setting_that_fits_is_taken() {
        for (limit, bytes) in
            [(None, 1024), (Some(1024), 1024), (Some(1023), 512), (Some(200), 128), (Some(1), 32)]
        {
            let (coded, _) = LADDER.fit(Last::default(), limit, encode).unwrap();
            assert_eq!(coded.len(), bytes, "{limit:?}");
        }
    }

    #[test]
    fn the_next_picture_begins_at_the_last_setting_and_gets_better_where_there_is_room() {
        let (_, mut last) = LADDER.fit(Last::default(), Some(130), encode).unwrap();
        for (limit, place) in [(130, 3), (400, 3), (1024, 2), (2048, 1), (2048, 0), (600, 1), (600, 1)] {
            (_, last) = LADDER.fit(last, Some(limit), encode).unwrap();
            assert_eq!(last.place, place, "{limit}");
        }
    }
}
