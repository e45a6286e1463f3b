//! The folder that `--plot` fills: one SVG per published curve.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use hitm_report::plot::{Plot, Series};
use hitm_report::validation::{Row, Validation};

use crate::failure::Failure;
use crate::output::Target;

/// A folder that can be written to. This is checked before the run.
pub(crate) struct Folder(PathBuf);

fn failure(path: &Path, why: &dyn Display) -> Failure {
    Failure::new(format!("--plot `{}`: {why}; name a folder that can be written to", path.display()))
}

impl Folder {
    /// Makes the folder if it does not exist.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|error| failure(path, &error))?;
        Ok(Self(path.to_owned()))
    }

    /// Draws every curve.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn write(&self, validation: &Validation) -> Result<(), Failure> {
        for plot in curves(validation) {
            let path = self.0.join(format!("{}.svg", file_name(&plot.title)));
            let Some(text) = plot.render().map_err(|error| failure(&path, &error))? else { continue };
            Target::open("--plot", &path)?.write(&text)?;
        }
        Ok(())
    }
}

fn file_name(title: &str) -> String {
    title.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }).collect()
}

fn curves(validation: &Validation) -> Vec<Plot> {
    let rows = || validation.experiments.iter().flat_map(|experiment| &experiment.rows);
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows().filter_map(|row| row.point.as_ref()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| curve(name, rows(), &validation.arbitrations)).collect()
}

fn curve<'a>(name: &str, rows: impl Iterator<Item = &'a Row>, policies: &[String]) -> Plot {
    let on_it =
        |row: &'a Row| row.point.as_ref().filter(|(curve, _)| curve == name).map(|(_, count)| (*count as f64, row));
    let points: Vec<(f64, &Row)> = rows.filter_map(on_it).collect();
    let published = Series {
        name: "published".to_owned(),
        points: points.iter().map(|(count, row)| (*count, row.published)).collect(),
        circles: true,
    };
    let simulated = policies.iter().map(|policy| Series {
        name: format!("simulated, {policy}"),
        points: points.iter().filter_map(|(count, row)| Some((*count, row.simulated.get(policy)?.value))).collect(),
        circles: false,
    });
    Plot {
        title: name.to_owned(),
        x_label: "CPUs".to_owned(),
        y_label: points.first().map_or_else(String::new, |(_, row)| row.unit.clone()),
        series: std::iter::once(published).chain(simulated).collect(),
    }
}
