//! A chart of a soak as SVG: one panel for each measured series over the same time, and a lane for each kind of fault.

use std::fmt::Write as _;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 170.0;
const RIGHT: f64 = 20.0;
const PANEL: f64 = 90.0;
const GAP: f64 = 26.0;
const LANE: f64 = 16.0;
const TOP: f64 = 30.0;

/// One measured value over time.
#[derive(Clone, Debug)]
pub struct Series {
    pub name: String,
    pub unit: &'static str,
    pub color: &'static str,
    /// Seconds and value; `None` where nothing could be measured.
    pub points: Vec<(f64, Option<f64>)>,
}

/// The times, in seconds, in which a fault was in force.
#[derive(Clone, Debug)]
pub struct Lane {
    pub name: String,
    pub spans: Vec<(f64, f64)>,
}

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub seconds: f64,
    pub series: Vec<Series>,
    pub lanes: Vec<Lane>,
}

impl Chart {
    #[must_use]
    pub fn svg(&self) -> String {
        let panels = self.series.iter().fold(TOP, |height, _| height + PANEL + GAP);
        let height = self.lanes.iter().fold(panels, |height, _| height + LANE) + 40.0;
        let mut svg = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
             <text x=\"10\" y=\"18\" font-size=\"14\">{}</text>",
            escaped(&self.title)
        );
        let mut top = TOP;
        for series in &self.series {
            self.panel(&mut svg, series, top);
            top += PANEL + GAP;
        }
        for lane in &self.lanes {
            self.lane(&mut svg, lane, top);
            top += LANE;
        }
        self.minutes(&mut svg, top);
        svg.push_str("</svg>\n");
        svg
    }

    fn x(&self, second: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * second / self.seconds.max(1.0)
    }

    fn panel(&self, svg: &mut String, series: &Series, top: f64) {
        let greatest = series.points.iter().filter_map(|(_, value)| *value).fold(0.0, f64::max);
        let limit = rounded_up(greatest);
        let (right, bottom) = (WIDTH - RIGHT, top + PANEL);
        for part in [0.0, 0.5, 1.0] {
            let y = bottom - PANEL * part;
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                limit * part
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"10\" y=\"{:.1}\" fill=\"{}\">{}</text><text x=\"10\" y=\"{:.1}\">{}</text>",
            top + PANEL / 2.0,
            series.color,
            escaped(&series.name),
            top + PANEL / 2.0 + 14.0,
            escaped(series.unit)
        );
        for line in series.points.split(|(_, value)| value.is_none()).filter(|line| !line.is_empty()) {
            let points = line.iter().map(|(second, value)| {
                format!("{:.1},{:.1}", self.x(*second), bottom - PANEL * value.unwrap_or_default() / limit)
            });
            let points: Vec<String> = points.collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\"/>",
                points.join(" "),
                series.color
            );
        }
    }

    fn lane(&self, svg: &mut String, lane: &Lane, top: f64) {
        let _ = writeln!(svg, "<text x=\"10\" y=\"{:.1}\">{}</text>", top + 11.0, escaped(&lane.name));
        for (from, to) in &lane.spans {
            // A short fault is still visible.
            let width = (self.x(*to) - self.x(*from)).max(1.5);
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{}\" fill=\"#c0392b\"/>",
                self.x(*from),
                top + 2.0,
                LANE - 5.0
            );
        }
    }

    /// At most about twelve labels.
    fn minutes(&self, svg: &mut String, top: f64) {
        let step = (self.seconds / 60.0 / 12.0).ceil().max(1.0);
        let mut minute = 0.0;
        while minute * 60.0 <= self.seconds {
            let x = self.x(minute * 60.0);
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{top:.1}\" stroke=\"#eeeeee\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{minute} min</text>",
                top + 16.0
            );
            minute += step;
        }
    }
}

/// 1, 2 or 5 times a power of ten, not below the value.
fn rounded_up(value: f64) -> f64 {
    let mut power = 1.0;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if value <= factor * power {
                return factor * power;
            }
        }
        power *= 10.0;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_chart_draws_lines_with_gaps_and_lanes() {
        let points = vec![(0.0, Some(0.0)), (30.0, Some(80.0)), (60.0, None), (120.0, Some(100.0))];
        let series = Series { name: "memory <x>".to_owned(), unit: "MB", color: "#123456", points };
        let lane = Lane { name: "disk full".to_owned(), spans: vec![(0.0, 60.0)] };
        let chart =
            Chart { title: "soak".to_owned(), seconds: 120.0, series: vec![series], lanes: vec![lane] };
        let svg = chart.svg();
        assert!(svg.contains("<polyline points=\"170.0,120.0 362.5,48.0\""), "{svg}");
        assert!(svg.contains("<polyline points=\"940.0,30.0\""), "{svg}");
        assert!(svg.contains("memory &lt;x&gt;"), "{svg}");
        assert!(svg.contains("<rect x=\"170.0\" y=\"148.0\" width=\"385.0\""), "{svg}");
        assert!(svg.contains(">2 min</text>"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn chart_axis_ends_at_a_round_number() {
        let limits = [0.0, 1.0, 1.2, 3.0, 7.0, 11.0, 480.0].map(rounded_up);
        assert_eq!(limits, [1.0, 1.0, 2.0, 5.0, 10.0, 20.0, 500.0]);
    }
}
