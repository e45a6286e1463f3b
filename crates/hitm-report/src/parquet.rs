//! A table as a Parquet file: one group of rows, its columns one by one.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;

use crate::result::ResultFile;
use crate::tables::{Cell, Column, Kind, Table};

impl Table {
    /// Returns the table of these files, each with its name, as the bytes of a Parquet file.
    ///
    /// # Errors
    /// When the writer cannot write it.
    pub fn parquet(&self, files: &[(String, ResultFile)]) -> Result<Vec<u8>, ParquetError> {
        let columns: Vec<&Column> = self.all_columns().collect();
        let mut values: Vec<Vec<Cell>> = vec![Vec::new(); columns.len()];
        self.each_row(files, |cells| {
            values.iter_mut().zip(cells).for_each(|(column, cell)| column.push(cell));
        });
        let fields = columns.iter().map(|column| typed(column).map(Arc::new)).collect::<Result<_, _>>()?;
        let schema = Type::group_type_builder(self.name).with_fields(fields).build()?;
        let mut bytes = Vec::new();
        let mut file =
            SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(WriterProperties::builder().build()))?;
        let mut group = file.next_row_group()?;
        for (column, cells) in columns.iter().zip(&values) {
            match column.kind {
                Kind::Text => write::<ByteArrayType>(&mut group, cells, |cell| match cell {
                    Cell::Text(text) => Some(ByteArray::from(text.as_str())),
                    _ => None,
                }),
                // Counts are far below 2^63.
                Kind::Whole => write::<Int64Type>(&mut group, cells, |cell| match cell {
                    Cell::Whole(number) => Some(*number as i64),
                    _ => None,
                }),
                Kind::Real => write::<DoubleType>(&mut group, cells, |cell| match cell {
                    Cell::Real(number) => Some(*number),
                    _ => None,
                }),
            }?;
        }
        group.close()?;
        file.close()?;
        Ok(bytes)
    }
}

/// Returns the type of a column: every value may be missing.
fn typed(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Kind::Whole => (Physical::INT64, None),
        Kind::Real => (Physical::DOUBLE, None),
    };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

/// Writes the next column.
fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    cells: &[Cell],
    value: impl Fn(&Cell) -> Option<T::T>,
) -> Result<(), ParquetError> {
    let values: Vec<Option<T::T>> = cells.iter().map(value).collect();
    // 1 where there is a value.
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let there: Vec<T::T> = values.into_iter().flatten().collect();
    let mut column = group.next_column()?.expect("the schema has as many columns");
    column.typed::<T>().write_batch(&there, Some(&levels), None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    use super::*;
    use crate::tables::TABLES;

    #[test]
    fn what_is_written_is_read() {
        let file = ResultFile::read(include_str!("../../../results/ffmpeg.json")).expect("a result file");
        let files = [("ffmpeg.json".to_owned(), file)];
        for table in &TABLES {
            let bytes = bytes::Bytes::from(table.parquet(&files).expect("it is written"));
            let reader = SerializedFileReader::new(bytes).expect("it is Parquet");
            let read: Vec<Vec<Field>> = reader
                .get_row_iter(None)
                .expect("rows")
                .map(|row| row.expect("a row").get_column_iter().map(|(_, field)| field.clone()).collect())
                .collect();
            let mut written = Vec::new();
            table.each_row(&files, |cells| {
                let field = |cell| match cell {
                    Cell::Text(text) => Field::Str(text),
                    Cell::Whole(number) => Field::Long(number as i64),
                    Cell::Real(number) => Field::Double(number),
                    Cell::Missing => Field::Null,
                };
                written.push(cells.into_iter().map(field).collect::<Vec<_>>());
            });
            assert_eq!(read, written, "{}", table.name);
        }
    }
}
