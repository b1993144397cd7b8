//! Parses the published measurements: `mot.profile.csv`, `mot.source.csv` and `mot.stat.csv`.

use std::collections::BTreeMap;

/// The most frames of a recording. A larger file is not one of the published files.
const FRAMES_MAX: usize = 1_000_000;
/// The most rows of a profile. A larger file is not one of the published files.
const ROWS_MAX: usize = 4_096;

/// A setting of AWStream's three knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Config {
    /// Width in pixels.
    pub width: u32,
    /// How many frames are skipped between two sent frames.
    pub skip: u32,
    /// H.264 quantiser.
    pub quantiser: u32,
}

impl Config {
    /// The name in results.
    pub fn name(&self) -> String {
        format!("h264/w{}/skip{}/q{}", self.width, self.skip, self.quantiser)
    }

    /// One in this many frames is sent.
    pub const fn every(&self) -> u32 {
        self.skip + 1
    }
}

/// A row of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The mean rate, in kbit/s.
    pub kilobits_per_second: f64,
    /// The configuration.
    pub config: Config,
    /// The accuracy (F1) of the authors' profiling.
    pub accuracy: f64,
}

/// The bytes and score of each frame at one configuration. A frame's number is that of `mot.stat.csv`,
/// counted from 0. The recording repeats after its last frame.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Encoded bytes. 0 if the configuration skips the frame.
    pub bytes: Vec<u32>,
    /// The F1 score of the application's knowledge at that time, if every sent frame arrives at once.
    pub f1: Vec<f64>,
}

impl Series {
    /// The bytes of a keyframe: the first frame of the recording is one.
    pub fn alone_bytes(&self) -> u32 {
        // Frame 0 is the last frame of the recording.
        let first = self.bytes.iter().skip(1).chain(self.bytes.first()).find(|bytes| **bytes > 0);
        first.copied().unwrap_or(0)
    }
}

/// Why published measurements could not be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DataError {
    /// A line is malformed.
    #[error("{file}, line {line}: {text:?} does not have the columns {expected}; use the file as published")]
    Line {
        /// The file.
        file: &'static str,
        /// The line number, from 1.
        line: usize,
        /// The line, or its beginning.
        text: String,
        /// The expected columns.
        expected: &'static str,
    },
    /// A file has no row, or too many.
    #[error("{file} has {rows} rows, expected 1 to {most}; use the file as published")]
    Rows {
        /// The file.
        file: &'static str,
        /// The number of rows.
        rows: usize,
        /// The most rows allowed.
        most: usize,
    },
    /// A configuration of the profile lacks a measurement of a frame.
    #[error(
        "{file} lacks frame {frame} at {config}, which the profile lists; use three files of one publication"
    )]
    Missing {
        /// The file.
        file: &'static str,
        /// The frame.
        frame: usize,
        /// The configuration's name.
        config: String,
    },
    /// The profile does not ascend.
    #[error("mot.profile.csv, row {row}: rate and accuracy must be above those of the row before")]
    Order {
        /// The row number, from 1.
        row: usize,
    },
}

/// The published measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurements {
    /// The profile, ascending.
    pub profile: Vec<Row>,
    /// For each row of the profile, the series of its frames.
    pub series: Vec<Series>,
    /// The number of frames of the recording.
    pub frames: usize,
    /// For each age in frames, the score of a result of that age relative to a fresh one.
    pub kept_by_age: Vec<f64>,
}

const PROFILE: &str = "mot.profile.csv";
const SOURCE: &str = "mot.source.csv";
const STAT: &str = "mot.stat.csv";

impl Measurements {
    /// Reads the three files.
    ///
    /// # Errors
    /// See [`DataError`].
    pub fn parse(profile: &str, source: &str, stat: &str) -> Result<Self, DataError> {
        let profile = read_profile(profile)?;
        let source = rows::<5>(SOURCE, source, "width,skip,quantiser,frame,bytes")?;
        let stat = rows::<7>(
            STAT,
            stat,
            "frame,width,skip,quantiser,true positives,false positives,false negatives",
        )?;
        let frames = source.iter().map(|row| row[3] as usize).max().unwrap_or(0);
        if frames == 0 || frames > FRAMES_MAX {
            return Err(DataError::Rows { file: SOURCE, rows: frames, most: FRAMES_MAX });
        }
        let mut bytes: BTreeMap<Config, Vec<Option<u32>>> = BTreeMap::new();
        for [width, skip, quantiser, frame, size] in source {
            let known = bytes.entry(Config { width, skip, quantiser }).or_insert_with(|| vec![None; frames]);
            known[frame as usize % frames] = Some(size);
        }
        let mut scores: BTreeMap<Config, Vec<Option<f64>>> = BTreeMap::new();
        for [frame, width, skip, quantiser, hits, wrong, missed] in stat {
            let known = scores.entry(Config { width, skip, quantiser }).or_insert_with(|| vec![None; frames]);
            known[frame as usize % frames] = Some(f1(hits, wrong, missed));
        }
        let mut series = Vec::new();
        for row in &profile {
            let config = row.config;
            series.push(Series {
                bytes: complete(SOURCE, config, bytes.remove(&config))?,
                f1: complete(STAT, config, scores.remove(&config))?,
            });
        }
        let kept_by_age = kept_by_age(&series);
        Ok(Self { profile, series, frames, kept_by_age })
    }

    /// The score of a result that is `age` frames old, relative to a fresh one. Beyond the measured ages,
    /// the score continues to fall at the rate of their later half.
    pub fn kept(&self, age: usize) -> f64 {
        let Some(last) = self.kept_by_age.len().checked_sub(1) else { return 1.0 };
        if age <= last {
            return self.kept_by_age[age];
        }
        let before = last / 2;
        let per_frame =
            (self.kept_by_age[last] / self.kept_by_age[before]).powf(1.0 / (last - before).max(1) as f64);
        self.kept_by_age[last] * per_frame.min(1.0).powf((age - last) as f64)
    }
}

fn f1(hits: u32, wrong: u32, missed: u32) -> f64 {
    let all = f64::from(2 * hits + wrong + missed);
    // There is no object, and none was found.
    if all == 0.0 { 1.0 } else { 2.0 * f64::from(hits) / all }
}

fn rows<const N: usize>(
    file: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<Vec<[u32; N]>, DataError> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let wrong =
            || DataError::Line { file, line: index + 1, text: line.chars().take(60).collect(), expected };
        let mut row = [0; N];
        let mut cells = line.split(',');
        for cell in &mut row {
            *cell = cells.next().and_then(|text| text.trim().parse().ok()).ok_or_else(wrong)?;
        }
        if cells.next().is_some() {
            return Err(wrong());
        }
        rows.push(row);
    }
    Ok(rows)
}

fn read_profile(text: &str) -> Result<Vec<Row>, DataError> {
    let mut profile: Vec<Row> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = || DataError::Line {
            file: PROFILE,
            line: index + 1,
            text: line.chars().take(60).collect(),
            expected: "kbit/s,width,skip,quantiser,accuracy",
        };
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [rate, width, skip, quantiser, accuracy] = cells[..] else { return Err(wrong()) };
        let whole = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let config = Config { width: whole(width)?, skip: whole(skip)?, quantiser: whole(quantiser)? };
        let real = |text: &str| text.parse::<f64>().ok().filter(|value| *value > 0.0).ok_or_else(wrong);
        let row = Row { kilobits_per_second: real(rate)?, config, accuracy: real(accuracy)? };
        if config.skip > 1_000 || row.accuracy > 1.0 {
            return Err(wrong());
        }
        let ascends = |before: &Row| {
            before.kilobits_per_second < row.kilobits_per_second && before.accuracy < row.accuracy
        };
        if !profile.last().is_none_or(ascends) {
            return Err(DataError::Order { row: profile.len() + 1 });
        }
        profile.push(row);
    }
    if profile.is_empty() || profile.len() > ROWS_MAX {
        return Err(DataError::Rows { file: PROFILE, rows: profile.len(), most: ROWS_MAX });
    }
    Ok(profile)
}

fn complete<T>(
    file: &'static str,
    config: Config,
    values: Option<Vec<Option<T>>>,
) -> Result<Vec<T>, DataError> {
    let missing = |frame| DataError::Missing { file, frame, config: config.name() };
    let values = values.ok_or_else(|| missing(0))?.into_iter().enumerate();
    values.map(|(frame, value)| value.ok_or_else(|| missing(frame))).collect()
}

/// The mean score at each age, divided by the mean score of fresh results of the same configurations. Over all configurations with frame skip.
fn kept_by_age(series: &[Series]) -> Vec<f64> {
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for one in series {
        let mut fresh = None;
        for (frame, (bytes, f1)) in one.bytes.iter().zip(&one.f1).enumerate() {
            if *bytes > 0 {
                fresh = Some((frame, *f1));
            }
            let Some((sent, fresh)) = fresh else { continue };
            let age = frame - sent;
            if sums.len() <= age {
                sums.resize(age + 1, (0.0, 0.0));
            }
            sums[age].0 += f1;
            sums[age].1 += fresh;
        }
    }
    sums.iter().map(|(aged, fresh)| if *fresh > 0.0 { (aged / fresh).min(1.0) } else { 0.0 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE_TEXT: &str = "100,640,1,30,0.7\n200,640,0,20,0.9\n";
    const SOURCE_TEXT: &str = "640,1,30,1,0\n640,1,30,2,500\n640,0,20,1,900\n640,0,20,2,600\n";
    const STAT_TEXT: &str = "0,640,1,30,4,1,1\n1,640,1,30,3,1,3\n0,640,0,20,5,0,0\n1,640,0,20,4,1,1\n";

    #[test]
    fn the_last_frame_of_the_source_is_the_first_of_the_scores() {
        let read = Measurements::parse(PROFILE_TEXT, SOURCE_TEXT, STAT_TEXT).expect("sound files");
        assert_eq!(read.frames, 2);
        assert_eq!(read.series[0].bytes, [500, 0]);
        assert_eq!(read.series[1].bytes, [600, 900]);
        assert_eq!(read.series[1].alone_bytes(), 900);
        assert!((read.series[0].f1[0] - 0.8).abs() < 1e-9 && (read.series[0].f1[1] - 0.6).abs() < 1e-9);
        assert!((read.kept(1) - 0.75).abs() < 1e-9, "0.6 of what was 0.8: {}", read.kept(1));
        assert!(read.kept(50) < read.kept(5) && read.kept(50) > 0.0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |profile: &str, source: &str, stat: &str| {
            Measurements::parse(profile, source, stat).expect_err("not sound").to_string()
        };
        let error = parse(PROFILE_TEXT, "640,1,30,1,0\n640,1,x,2,500\n", STAT_TEXT);
        assert!(error.starts_with("mot.source.csv, line 2:"), "{error}");
        let error = parse(PROFILE_TEXT, SOURCE_TEXT, "0,640,1,30,4,1,1\n");
        assert!(error.contains("mot.stat.csv lacks frame 1 at h264/w640/skip1/q30"), "{error}");
        let error = parse("200,640,1,30,0.7\n100,640,0,20,0.9\n", SOURCE_TEXT, STAT_TEXT);
        assert!(error.contains("row 2"), "{error}");
        let error = parse("", SOURCE_TEXT, STAT_TEXT);
        assert!(error.contains("mot.profile.csv has 0 rows"), "{error}");
    }
}
