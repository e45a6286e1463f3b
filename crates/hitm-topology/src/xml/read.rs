//! The file, event by event.

use std::path::Path;

use quick_xml::errors::SyntaxError;
use quick_xml::events::{BytesStart, Event};

use super::attributes::{Attributes, EXPORT_AGAIN, Fault};
use super::distances::Matrix;
use super::tree::{Object, Tree};
use crate::draft::{Draft, NodeDistances};
use crate::error::{Error, Place, one_line, quote};
use crate::family::PartialFamily;
use crate::file::{Content, name_of, read_text};
use crate::limits::{MAX_XML_BYTES, MAX_XML_DEPTH};
use crate::topology::Topology;

/// The newest format that is read.
const FORMAT_MAX: u32 = 3;

/// The remedy for a truncated file.
const CUT_SHORT: &str = "copy or export it again, it is cut short";

/// Returns the machine that an hwloc XML file describes.
pub(crate) fn read_file(path: &str) -> Result<Topology, Error> {
    let fail = |cause: String| {
        Err(Error::new(path, Place::Whole, cause, "name an hwloc XML file, as `lstopo FILE.xml` writes it"))
    };
    let text = match read_text(Path::new(path), MAX_XML_BYTES) {
        Content::Text(text) => text,
        Content::Missing => return fail("there is no such file".to_string()),
        Content::Failed(cause) => return fail(cause),
    };
    let place = |(offset, (cause, remedy)): (usize, Fault)| {
        let line = 1 + text.bytes().take(offset).filter(|&b| b == b'\n').count();
        Error::new(path, Place::Line(line), cause, remedy)
    };
    let mut document = Document::default();
    document.read(&text).map_err(place)?;
    let (cpus, excluded) = document.tree.finish().map_err(place)?;
    let draft = Draft {
        name: name_of(path),
        source: format!("hwloc XML, format {}", document.format),
        model: document.model.take(),
        family: std::mem::take(&mut document.family).complete(),
        excluded,
        cpus,
        distances: document.take_distances().map_err(place)?,
    };
    draft.finish(path)
}

/// An open element.
enum Open {
    Topology,
    Object(Box<Object>),
    Matrix(Box<Matrix>),
    /// Texts inside a matrix.
    Indexes,
    Values,
    /// An unused element and its contents.
    Other,
}

/// The contents that were read so far.
#[derive(Default)]
struct Document {
    format: u32,
    tree: Tree,
    matrices: Vec<Matrix>,
    model: Option<String>,
    family: PartialFamily,
    open: Vec<Open>,
    roots: usize,
    elements: usize,
}

fn export_again<T>(cause: impl Into<String>) -> Result<T, Fault> {
    Err((cause.into(), EXPORT_AGAIN.to_string()))
}

impl Document {
    /// Reads all of it; a fault comes with the offset of the event.
    fn read(&mut self, text: &str) -> Result<(), (usize, Fault)> {
        let mut events = quick_xml::Reader::from_str(text);
        loop {
            // The text before a tag is an event of its own, so this is where the tag begins.
            let offset = events.buffer_position() as usize;
            let at = |fault: Fault| (offset, fault);
            match events.read_event() {
                Ok(Event::Start(start)) => {
                    let open = self.start(&start, offset).map_err(at)?;
                    self.open.push(open);
                }
                Ok(Event::Empty(start)) => {
                    let open = self.start(&start, offset).map_err(at)?;
                    self.end(open).map_err(at)?;
                }
                Ok(Event::End(_)) => {
                    if let Some(open) = self.open.pop() {
                        self.end(open).map_err(at)?;
                    }
                }
                Ok(Event::Text(text)) => self.text(&text).map_err(at)?,
                Ok(Event::DocType(text)) if text.contains('[') => {
                    let cause = "the DOCTYPE declares entities or elements of its own, which hwloc never writes";
                    return export_again(cause).map_err(at);
                }
                Ok(Event::CData(_) | Event::GeneralRef(_)) if self.inside_matrix() => {
                    return export_again("a distance matrix is not made of plain numbers").map_err(at);
                }
                Ok(Event::Eof) => return self.eof().map_err(|fault| (text.len(), fault)),
                Ok(_) => {}
                // Any markup that is still open at the end of the input, except invalid markup.
                Err(quick_xml::Error::Syntax(what)) if what != SyntaxError::InvalidBangMarkup => {
                    let cause = format!("the file ends inside a tag ({})", one_line(&what.to_string()));
                    return Err((events.error_position() as usize, (cause, CUT_SHORT.to_string())));
                }
                Err(error) => {
                    let cause = format!("it is not well-formed XML ({})", one_line(&error.to_string()));
                    return export_again(cause).map_err(|fault| (events.error_position() as usize, fault));
                }
            }
        }
    }

    fn eof(&self) -> Result<(), Fault> {
        if !self.open.is_empty() {
            let cause = format!("the file ends inside {} open elements", self.open.len());
            return Err((cause, CUT_SHORT.to_string()));
        }
        if self.elements == 0 {
            return export_again("there is no XML element in it");
        }
        if self.roots == 0 {
            return export_again("there is no `object` in it");
        }
        Ok(())
    }

    fn start(&mut self, start: &BytesStart<'_>, offset: usize) -> Result<Open, Fault> {
        self.elements += 1;
        if self.open.len() >= MAX_XML_DEPTH {
            return export_again(format!("elements are nested deeper than {MAX_XML_DEPTH}"));
        }
        let name = start.name().into_inner();
        let read = |element| Attributes::read(element, start);
        match (self.open.last_mut(), name) {
            (None, "topology" | "root") if self.elements == 1 => {
                self.format = format(&read("topology")?)?;
                Ok(Open::Topology)
            }
            (None, _) if self.elements == 1 => {
                let remedy = "name an hwloc XML file, as `lstopo FILE.xml` writes it".to_string();
                Err((format!("the file begins with {} where hwloc writes `topology`", quote(name)), remedy))
            }
            (None, _) => export_again(format!("{} follows the end of `topology`", quote(name))),
            (Some(Open::Topology), "object") => {
                self.roots += 1;
                if self.roots > 1 {
                    return export_again("there is a second `object` beside the machine");
                }
                Ok(Open::Object(Box::new(self.tree.open(&read("object")?, offset, &mut [])?)))
            }
            (Some(Open::Object(_)), "object") => {
                let mut around: Vec<&mut Object> = Vec::with_capacity(self.open.len());
                around.extend(self.open.iter_mut().filter_map(|open| match open {
                    Open::Object(object) => Some(&mut **object),
                    _ => None,
                }));
                Ok(Open::Object(Box::new(self.tree.open(&read("object")?, offset, &mut around)?)))
            }
            (Some(_), "object") => export_again("an `object` is inside something that is none"),
            (Some(Open::Object(object)), "info") => {
                if object.describes_processor() {
                    self.info(&read("info")?);
                }
                Ok(Open::Other)
            }
            (Some(Open::Object(object)), "distances") if self.format == 1 => {
                Ok(Matrix::of_depth(&read(name)?, offset, object.depth)?
                    .map_or(Open::Other, |matrix| Open::Matrix(Box::new(matrix))))
            }
            (Some(Open::Topology), "distances2") => {
                Ok(Matrix::of_type(&read(name)?, offset)?.map_or(Open::Other, |matrix| Open::Matrix(Box::new(matrix))))
            }
            (Some(Open::Matrix(matrix)), "latency") => {
                matrix.push_latency(&read("latency")?)?;
                Ok(Open::Other)
            }
            (Some(Open::Matrix(_)), "indexes") => Ok(Open::Indexes),
            (Some(Open::Matrix(_)), "u64values") => Ok(Open::Values),
            _ => Ok(Open::Other),
        }
    }

    fn end(&mut self, open: Open) -> Result<(), Fault> {
        match open {
            Open::Object(object) => self.tree.close(&object),
            Open::Matrix(matrix) => {
                self.matrices.push(*matrix);
                Ok(())
            }
            Open::Topology | Open::Indexes | Open::Values | Open::Other => Ok(()),
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Fault> {
        let Some((last, outer)) = self.open.split_last_mut() else {
            return if text.trim_ascii().is_empty() {
                Ok(())
            } else {
                export_again("there is text outside of all elements")
            };
        };
        match (last, outer.last_mut()) {
            (Open::Indexes, Some(Open::Matrix(matrix))) => matrix.push_indexes(text),
            (Open::Values, Some(Open::Matrix(matrix))) => matrix.push_values(text),
            _ => Ok(()),
        }
    }

    fn inside_matrix(&self) -> bool {
        matches!(self.open.last(), Some(Open::Indexes | Open::Values))
    }

    /// Takes hwloc's description of the processor; the first package counts for all.
    fn info(&mut self, attributes: &Attributes<'_>) {
        let (Some(name), Some(value)) = (attributes.get("name"), attributes.get("value")) else { return };
        let value = value.trim();
        let number = || value.parse().ok();
        match name {
            "CPUModel" => self.model = self.model.take().or_else(|| Some(one_line(value))),
            "CPUVendor" => self.family.vendor = self.family.vendor.take().or_else(|| Some(one_line(value))),
            "CPUFamilyNumber" => self.family.family = self.family.family.or_else(number),
            "CPUModelNumber" => self.family.model = self.family.model.or_else(number),
            "CPUStepping" => self.family.stepping = self.family.stepping.or_else(number),
            _ => {}
        }
    }

    /// Returns the most suitable of all matrices, once all nodes are known.
    fn take_distances(&mut self) -> Result<Option<NodeDistances>, (usize, Fault)> {
        let nodes = &self.tree.nodes;
        let mut best: Option<(u32, Matrix)> = None;
        for matrix in std::mem::take(&mut self.matrices) {
            if let Some(rank) = matrix.rank(nodes)
                && best.as_ref().is_none_or(|(other, _)| rank > *other)
            {
                best = Some((rank, matrix));
            }
        }
        best.map(|(_, matrix)| (matrix.offset, matrix))
            .map(|(offset, matrix)| matrix.finish(nodes).map_err(|fault| (offset, fault)))
            .transpose()
    }
}

/// Returns the format in the `version` attribute of the root element.
fn format(attributes: &Attributes<'_>) -> Result<u32, Fault> {
    let Some(version) = attributes.get("version") else { return Ok(1) };
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    match major {
        Some(major @ 1..=FORMAT_MAX) => Ok(major),
        _ => Err((
            format!("format {} is none of 1 to {FORMAT_MAX}", quote(version)),
            "export the file with hwloc 1 to 3".to_string(),
        )),
    }
}
