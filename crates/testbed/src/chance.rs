//! Draws from the distributions that the models of links use.

use std::ops::RangeInclusive;

use crate::random::Random;

/// Draws from distributions.
#[derive(Clone, Debug)]
pub struct Chance {
    random: Random,
    /// The second normal variate of a pair, which the next call of [`Chance::normal`] returns.
    spare: Option<f64>,
}

impl Chance {
    /// Draws from `random`.
    pub const fn new(random: Random) -> Self {
        Self { random, spare: None }
    }

    /// A uniform draw between 0 and 1, both excluded.
    pub fn unit(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// A uniform whole number of `range`.
    pub fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.random.within(range)
    }

    /// A draw from the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// A draw from the standard normal distribution (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let (radius, angle) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// A draw from the gamma distribution with this shape and mean 1 (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        // A shape below 1 is raised by one and corrected by a power of a uniform draw: section 6 of the paper.
        let (drawn, bend) =
            if shape < 1.0 { (shape + 1.0, self.unit().powf(1.0 / shape)) } else { (shape, 1.0) };
        let d = drawn - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && self.unit().ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * bend / shape;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares mean and variance of many draws with those of the distribution.
    #[test]
    fn draws_have_the_mean_and_the_variance_of_their_distribution() {
        let mut chance = Chance::new(Random::seeded(3));
        let draws = 40_000;
        let mut check = |name: &str, mean: f64, variance: f64, draw: &mut dyn FnMut(&mut Chance) -> f64| {
            let values: Vec<f64> = (0..draws).map(|_| draw(&mut chance)).collect();
            let seen = values.iter().sum::<f64>() / f64::from(draws);
            let spread = values.iter().map(|value| (value - seen).powi(2)).sum::<f64>() / f64::from(draws);
            assert!((seen - mean).abs() < 0.04 * variance.sqrt(), "mean of {name}: {seen}");
            assert!((spread / variance - 1.0).abs() < 0.1, "variance of {name}: {spread}");
        };
        check("normal", 0.0, 1.0, &mut |chance| chance.normal());
        check("exponential", 3.0, 9.0, &mut |chance| chance.exponential(3.0));
        for shape in [0.25, 0.6, 6.0] {
            check("gamma", 1.0, 1.0 / shape, &mut |chance| chance.gamma(shape));
        }
    }
}
