//! Compares the model with tables 1 and 2 of the Mez paper (A. George et al., 2020).

use super::{Constants, Load, latencies_ms};

/// The distance from a camera to the access point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distance {
    /// 6 m.
    Near,
    /// 12 m.
    Far,
}

impl Distance {
    /// The distance in metres.
    pub fn metres(self) -> f64 {
        match self {
            Self::Near => 6.0,
            Self::Far => 12.0,
        }
    }
}

/// A cell of a table: what was sent, and the measured 95th percentile of the latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The number of the table: 1 or 2.
    pub table: u8,
    /// The size of a frame, in kilobytes.
    pub kilobytes: f64,
    /// How many cameras send at once.
    pub cameras: usize,
    /// Frames in a second.
    pub frames_per_second: f64,
    /// How far every camera is from the access point.
    pub distance: Distance,
    /// 95th percentile of the first camera's latency, in milliseconds.
    pub latency_ms_p95: f64,
}

const fn cell(
    table: u8,
    kilobytes: f64,
    cameras: usize,
    frames_per_second: f64,
    latency_ms_p95: f64,
) -> Cell {
    Cell { table, kilobytes, cameras, frames_per_second, distance: Distance::Near, latency_ms_p95 }
}

/// A cell of table 2 with the cameras at 12 m.
const fn far(cameras: usize, latency_ms_p95: f64) -> Cell {
    Cell { distance: Distance::Far, ..cell(2, 1740.0, cameras, 5.0, latency_ms_p95) }
}

/// The cells of both tables. The cells of one and of five cameras with 1740 kB are in both tables, and are listed once, under the first.
pub const CELLS: [Cell; 25] = [
    cell(1, 610.0, 1, 5.0, 32.09),
    cell(1, 760.0, 1, 5.0, 35.16),
    cell(1, 970.0, 1, 5.0, 46.09),
    cell(1, 1390.0, 1, 5.0, 59.71),
    cell(1, 1670.0, 1, 5.0, 68.73),
    cell(1, 1740.0, 1, 5.0, 72.72),
    cell(1, 610.0, 5, 5.0, 150.28),
    cell(1, 760.0, 5, 5.0, 164.56),
    cell(1, 970.0, 5, 5.0, 262.43),
    cell(1, 1390.0, 5, 5.0, 382.47),
    cell(1, 1670.0, 5, 5.0, 606.98),
    cell(1, 1740.0, 5, 5.0, 617.16),
    cell(2, 1740.0, 2, 5.0, 128.97),
    cell(2, 1740.0, 3, 5.0, 341.18),
    cell(2, 1740.0, 4, 5.0, 518.31),
    cell(2, 1740.0, 1, 15.0, 80.60),
    cell(2, 1740.0, 2, 15.0, 409.82),
    cell(2, 1740.0, 3, 15.0, 438.01),
    cell(2, 1740.0, 4, 15.0, 585.58),
    cell(2, 1740.0, 5, 15.0, 631.76),
    far(1, 96.35),
    far(2, 162.15),
    far(3, 390.75),
    far(4, 526.95),
    far(5, 657.88),
];

/// The room of the measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Room {
    /// The medium. Its highest rate is the rate at 6 m.
    pub near: Constants,
    /// The highest rate at 12 m, in Mbit/s.
    pub far_mbps: f64,
}

impl Room {
    /// The room as calibrated on all cells.
    pub const CALIBRATED: Self = Self { near: Constants::CALIBRATED, far_mbps: 240.0 };

    fn at(&self, distance: Distance) -> Constants {
        match distance {
            Distance::Near => self.near,
            Distance::Far => Constants { phy_mbps: self.far_mbps, ..self.near },
        }
    }
}

/// The 95th percentile of the first camera's latency in the model, in milliseconds.
pub fn modelled_ms(room: &Room, cell: &Cell, frames: usize, seed: u64) -> f64 {
    let load = Load {
        bytes: cell.kilobytes * 1e3,
        frames_per_second: cell.frames_per_second,
        size_noise: 0.05,
        on_off_ms: None,
    };
    let mut latencies =
        latencies_ms(&room.at(cell.distance), &vec![load; cell.cameras], frames, seed).swap_remove(0);
    latencies.sort_by(f64::total_cmp);
    latencies[(latencies.len() * 95).div_ceil(100) - 1]
}

/// The mean of |modelled ÷ measured − 1| over the selected cells.
pub fn error(room: &Room, frames: usize, seed: u64, which: impl Fn(&Cell) -> bool) -> f64 {
    let cells: Vec<&Cell> = CELLS.iter().filter(|cell| which(cell)).collect();
    let errors =
        cells.iter().map(|cell| (modelled_ms(room, cell, frames, seed) / cell.latency_ms_p95 - 1.0).abs());
    errors.sum::<f64>() / cells.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The experiment has more frames, so the bound is wider here.
    #[test]
    fn the_model_is_near_the_tables() {
        let error = error(&Room::CALIBRATED, 30, 5, |cell| cell.frames_per_second < 10.0);
        assert!(error < 0.18, "mean absolute error {error:.3}");
    }
}
