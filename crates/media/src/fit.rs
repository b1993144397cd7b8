//! Encodes a picture with at most a given number of bytes, in few tries.

use bytes::Bytes;

/// Maximum number of times that one picture is encoded. Each takes milliseconds.
const TRIES_MAX: usize = 3;

/// A better setting is tried if the picture is expected to use at most this part of the limit.
const MARGIN: f64 = 0.9;

/// Describes a list of settings of an encoder, best first.
#[derive(Debug, Clone, Copy)]
pub struct Ladder {
    /// How many bytes a picture has at each setting, relative to the first one, as a rule.
    pub sizes: &'static [f64],
}

/// How the last picture was encoded.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Last {
    /// The setting.
    pub place: usize,
    /// Its bytes, relative to the limit.
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
        bytes_max: u32,
        mut encode: impl FnMut(usize) -> Result<Bytes, E>,
    ) -> Result<(Bytes, Last), E> {
        let mut place = last.place;
        if place > 0 && self.expected(last, place - 1) <= MARGIN {
            place -= 1;
        }
        let mut tries = 1;
        loop {
            let coded = encode(place)?;
            let now = Last { place, part: coded.len() as f64 / f64::from(bytes_max.max(1)) };
            if now.part <= 1.0 || tries == TRIES_MAX || place + 1 >= self.sizes.len() {
                return Ok((coded, now));
            }
            let next = (place + 1..self.sizes.len()).find(|next| self.expected(now, *next) <= 1.0);
            (place, tries) = (next.unwrap_or(self.sizes.len() - 1), tries + 1);
        }
    }

    /// The part of the limit that a picture like the last one uses at another setting.
    fn expected(&self, last: Last, place: usize) -> f64 {
        last.part * self.sizes[place] / self.sizes[last.place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first step saves more than the others.
    const LADDER: Ladder = Ladder { sizes: &[1.0, 0.125, 0.0625, 0.03125] };

    fn encode(place: usize) -> Result<Bytes, ()> {
        Ok(vec![0; (1024.0 * LADDER.sizes[place]) as usize].into())
    }

    #[test]
    fn the_best_setting_that_fits_is_taken() {
        for (limit, bytes) in [(u32::MAX, 1024), (1024, 1024), (1023, 128), (200, 128), (127, 64), (1, 32)] {
            let (coded, _) = LADDER.fit(Last::default(), limit, encode).unwrap();
            assert_eq!(coded.len(), bytes, "{limit:?}");
        }
    }

    #[test]
    fn the_next_picture_begins_at_the_last_setting_and_gets_better_where_there_is_room() {
        let mut last = Last::default();
        for (limit, place) in
            [(40, 3), (140, 3), (140, 2), (140, 2), (160, 2), (160, 1), (2048, 1), (2048, 0), (100, 2)]
        {
            (_, last) = LADDER.fit(last, limit, encode).unwrap();
            assert_eq!(last.place, place, "{limit}");
        }
    }
}
