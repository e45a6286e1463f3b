// Elements, numbers and colours. All text reaches the page by text nodes: no name is ever markup.

/** Makes an element. `attributes` with a function are listeners. */
function make(namespace, tag, attributes, children) {
  const element = document.createElementNS(namespace, tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name, value);
    else if (name.startsWith('--')) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const el = (tag, attributes, ...children) => make('http://www.w3.org/1999/xhtml', tag, attributes, children);
const svg = (tag, attributes, ...children) => make('http://www.w3.org/2000/svg', tag, attributes, children);

/** A number of few characters: `57.4K`. */
function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '-';
  const size = Math.abs(value);
  for (const [unit, from] of [['T', 1e12], ['G', 1e9], ['M', 1e6], ['K', 1e3]]) {
    if (size >= 0.9995 * from) return (value / from).toFixed(1) + unit;
  }
  if (Number.isInteger(value)) return String(value);
  return value.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
}

/** A share as percent. */
function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return '-';
  const value = 100 * share;
  if (value !== 0 && Math.abs(value) < 0.1) return value > 0 ? '<0.1 %' : '>-0.1 %';
  return value.toFixed(1) + ' %';
}

/** A factor with its interval. */
const factor = (value, interval) =>
  Number.isFinite(value ?? NaN) ? value.toFixed(3) + (interval ? ' ±' + interval.toFixed(3) : '') : '-';

/** A figure with its interval and unit. */
function figure(metric) {
  const value = metric.value ?? NaN;
  if (!Number.isFinite(value)) return '-';
  const interval = metric.interval ? ' ±' + short(metric.interval) : '';
  return short(value) + interval + (metric.unit ? ' ' + metric.unit : '');
}

const sum = (list, of) => list.reduce((total, one) => total + of(one), 0);
const words = (name) => name.replaceAll('_', ' ');
const hexadecimal = (offset) => '0x' + offset.toString(16);
const plural = (count, one, many = one + 's') => count.toLocaleString('en-US') + ' ' + (count === 1 ? one : many);

/** A sentence in place of what is not there. */
const missing = (...text) => el('p', { class: 'missing' }, ...text);

/** A bar beside its number. */
const bar = (share, text) =>
  el('span', { class: 'bar', '--share': Math.max(0, Math.min(1, share || 0)).toFixed(4) }, el('span', null, text));

/**
 * A table. A column has a head, a cell by row, and `number` where it is aligned at the right.
 * The caption is read aloud, and shown.
 */
function table(caption, columns, rows, attributes) {
  const head = columns.map((column) =>
    el('th', { scope: 'col', class: column.number ? 'number' : null, title: column.title }, column.head));
  const body = rows.map((row) => el('tr', row.attributes, columns.map((column, index) => {
    const classes = [column.number ? 'number' : '', column.class ?? ''].join(' ').trim();
    return el(index === 0 ? 'th' : 'td', { class: classes || null, scope: index === 0 ? 'row' : null }, column.cell(row));
  })));
  const whole = el('table', attributes, caption ? el('caption', null, caption) : null,
    el('thead', null, el('tr', null, head)), el('tbody', null, body));
  return scrolled(caption || 'Table', whole);
}

/** What is wider than the page scrolls in itself, also by the keyboard. */
const scrolled = (name, content) => el('div', { class: 'wide', role: 'region', 'aria-label': name, tabindex: 0 }, content);

/** A choice. `options` are values with texts. */
function choice(label, options, value, chosen) {
  const select = el('select', { change: () => chosen(select.value) },
    options.map(([option, text]) => el('option', { value: option, selected: option === value }, text)));
  return el('label', { class: 'choice' }, label + ' ', select);
}

/** The largest rows and columns of a matrix that is shown as a table. */
const TABLE_MAX = 16;

/**
 * A matrix of names by names, darker where the value is larger. `value(row, column)` may be 0. Small
 * ones are tables with numbers, large ones a picture with the largest values in words.
 */
function matrix(caption, side, rows, columns, value, shown) {
  let most = 0;
  const large = [];
  rows.forEach((_, row) => columns.forEach((_, column) => {
    const one = value(row, column);
    if (one > 0) large.push([one, row, column]);
    most = Math.max(most, one);
  }));
  if (most === 0) return missing(caption + ': nothing was counted.');
  if (rows.length <= TABLE_MAX && columns.length <= TABLE_MAX) {
    const heads = columns.map((name) => el('th', { scope: 'col', class: 'number' }, name));
    const body = rows.map((name, row) => el('tr', null, el('th', { scope: 'row' }, name), columns.map((_, column) => {
      const one = value(row, column);
      return el('td', { class: 'heat number', '--heat': (one / most).toFixed(3) }, one > 0 ? shown(one) : '·');
    })));
    return scrolled(caption, el('table', { class: 'matrix' }, el('caption', null, caption),
      el('thead', null, el('tr', null, el('th', { scope: 'col' }, side), heads)), el('tbody', null, body)));
  }
  const cell = Math.max(3, Math.floor(640 / Math.max(rows.length, columns.length)));
  const cells = large.map(([one, row, column]) =>
    svg('rect', { x: column * cell, y: row * cell, width: cell, height: cell, class: 'cost', 'fill-opacity': (0.1 + 0.9 * one / most).toFixed(3) },
      svg('title', null, rows[row] + ', ' + columns[column] + ': ' + shown(one))));
  large.sort((a, b) => b[0] - a[0]);
  const [width, height] = [columns.length * cell, rows.length * cell];
  return el('figure', null, el('figcaption', null, caption + ' (' + side + '). The largest: ' +
    large.slice(0, 3).map(([one, row, column]) => rows[row] + ', ' + columns[column] + ' ' + shown(one)).join('; ') + '.'),
  scrolled(caption, svg('svg', { width, height, viewBox: '0 0 ' + width + ' ' + height, role: 'img', 'aria-label': caption },
    svg('rect', { width, height, class: 'paper' }), cells)));
}
