//! Curves as SVG.

use std::error::Error;

use plotters::prelude::{
    BLACK, ChartBuilder, Circle, Color, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor, SVGBackend,
    WHITE,
};

/// One plot, both axes logarithmic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plot {
    /// The title, above the plot.
    pub title: String,
    /// The label of the x axis.
    pub x_label: String,
    /// The label of the y axis.
    pub y_label: String,
    /// The curves; points that are not above zero are left out.
    pub series: Vec<Series>,
}

/// A curve in one colour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Points by ascending x.
    pub points: Vec<(f64, f64)>,
    /// Whether the points are circles, for measured values; otherwise they are joined.
    pub circles: bool,
}

/// Width and height.
const SIZE: (u32, u32) = (720, 440);

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(240, 228, 66),
];

impl Plot {
    /// Returns the SVG's text; `None` when there is no point to draw.
    ///
    /// # Errors
    /// When the plot cannot be drawn.
    pub fn render(&self) -> Result<Option<String>, Box<dyn Error>> {
        let points = || self.series.iter().flat_map(|series| drawn(&series.points));
        let Some((x, y)) = ends(points().map(|(x, _)| x)).zip(ends(points().map(|(_, y)| y))) else {
            return Ok(None);
        };
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            area.fill(&WHITE)?;
            let mut chart = ChartBuilder::on(&area)
                .caption(&self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .build_cartesian_2d((x.0..x.1).log_scale(), (y.0..y.1).log_scale())?;
            chart.configure_mesh().x_desc(&self.x_label).y_desc(&self.y_label).draw()?;
            for (index, series) in self.series.iter().enumerate() {
                let colour = if series.circles { BLACK } else { COLOURS[index % COLOURS.len()] };
                let drawn = || drawn(&series.points);
                if series.circles {
                    chart
                        .draw_series(drawn().map(|point| Circle::new(point, 4, colour.stroke_width(2))))?
                        .label(&series.name)
                        .legend(move |(x, y)| Circle::new((x + 10, y), 4, colour.stroke_width(2)));
                } else {
                    chart
                        .draw_series(LineSeries::new(drawn(), colour.stroke_width(2)))?
                        .label(&series.name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
                }
            }
            chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
            area.present()?;
        }
        Ok(Some(text))
    }
}

fn drawn(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> + '_ {
    points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0 && x.is_finite() && y.is_finite())
}

/// Returns the minimum and the maximum, with a margin.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (least, most) =
        values.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)));
    (most > 0.0).then_some((least / 1.3, most * 1.3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_all_that_it_draws() {
        let series =
            |name: &str, circles| Series { name: name.to_owned(), points: vec![(1.0, 5.0), (8.0, 200.0)], circles };
        let plot = Plot {
            title: "adds".to_owned(),
            x_label: "CPUs".to_owned(),
            y_label: "ns".to_owned(),
            series: vec![series("published", true), series("fifo", false)],
        };
        let text = plot.render().expect("drawn").expect("points");
        for word in ["<svg", "adds", "CPUs", "published", "fifo", "circle", "polyline"] {
            assert!(text.contains(word), "{word} in {text}");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_plot() {
        let series = vec![Series { name: "none".to_owned(), points: vec![(0.0, 1.0)], circles: true }];
        assert_eq!(Plot { series, ..Plot::default() }.render().expect("no error"), None);
    }
}
