// Bytes: which field stands where, and the ruler of a line.

/** Bytes of a line of the model. */
const LINE = 64;

/** Elements of an array that are listed one by one. */
const ELEMENTS_MAX = 4096;

/** The words of `fields` in the bytes from `from` to `to` of the object. */
function leaves(fields, from, to, base = 0, prefix = '') {
  const found = [];
  for (const field of fields ?? []) {
    const [start, count] = [base + field.offset, field.count ?? 1];
    const name = (field.name === '' ? prefix.replace(/\.$/, '') : prefix + field.name);
    const first = Math.max(0, Math.floor((from - start) / field.size));
    const last = Math.min(count, Math.ceil((to - start) / field.size), first + ELEMENTS_MAX);
    for (let element = first; element < last; element += 1) {
      const own = name + (count > 1 || field.name === '' ? '[' + element + ']' : '');
      const offset = start + element * field.size;
      if (field.fields?.length) found.push(...leaves(field.fields, from, to, offset, own + '.'));
      else if (offset < to && offset + field.size > from) found.push({ name: own, offset, size: field.size, doc: field.doc });
    }
  }
  return found;
}

/** The counts of the touched fields of lines, by offset in the object. */
function touches(lines) {
  const by = new Map();
  for (const line of lines) {
    for (const field of line.fields) {
      const one = by.get(field.offset) ?? { name: field.field, offset: field.offset, loads: 0, stores: 0, waits: 0, fields: [] };
      one.loads += field.loads;
      one.stores += field.stores;
      one.waits += field.waits ?? fieldWaits(field);
      one.fields.push(field);
      by.set(field.offset, one);
    }
  }
  return by;
}

/**
 * The words of an object's bytes from `from` to `to`, with counts. Where the layout is not known, a
 * touched word reaches to the next one, and no farther than 8 bytes.
 */
function wordsOf(run, object, lines, from, to) {
  const touched = touches(lines);
  const known = leaves(run.layouts[object], from, to);
  const found = known.map((leaf) => {
    const own = [...touched.values()].filter((one) => one.offset >= leaf.offset && one.offset < leaf.offset + leaf.size);
    own.forEach((one) => touched.delete(one.offset));
    return { ...leaf, loads: sum(own, (one) => one.loads), stores: sum(own, (one) => one.stores), waits: sum(own, (one) => one.waits), fields: own.flatMap((one) => one.fields) };
  });
  const rest = [...touched.values()].filter((one) => one.offset >= from && one.offset < to).sort((a, b) => a.offset - b.offset);
  rest.forEach((one, index) => {
    const next = rest[index + 1]?.offset ?? to;
    found.push({ ...one, size: Math.max(1, Math.min(8, next - one.offset)), guessed: true });
  });
  return found.sort((a, b) => a.offset - b.offset);
}

const share = (value, most) => (most > 0 ? value / most : 0);
const opacity = (part) => (part > 0 ? (0.12 + 0.88 * part).toFixed(3) : 0);

/**
 * Bytes as a ruler: the fields, and under each byte how much it is read, written and waited for.
 * Rows of 64 bytes stand below each other.
 */
function ruler(found, from, bytes) {
  const [wide, lane, left, top] = [13, 16, 66, 34];
  const [names, rows] = [54, bytes / LINE];
  const height = top + names + 3 * lane + 14;
  const most = { loads: Math.max(0, ...found.map((one) => one.loads)), stores: Math.max(0, ...found.map((one) => one.stores)), waits: Math.max(0, ...found.map((one) => one.waits)) };
  const parts = [];
  for (let row = 0; row < rows; row += 1) {
    const [start, y] = [from + row * LINE, row * height];
    const x = (offset) => left + (offset - start) * wide;
    const end = start + LINE;
    for (let byte = 0; byte <= LINE; byte += 8) {
      parts.push(svg('text', { x: x(start + byte), y: y + 14, class: 'tick', 'text-anchor': 'middle' }, hexadecimal(start + byte)));
      parts.push(svg('line', { x1: x(start + byte), x2: x(start + byte), y1: y + 18, y2: y + top, class: 'rule' }));
    }
    parts.push(svg('rect', { x: left, y: y + top, width: LINE * wide, height: names, class: 'hole' }));
    const own = found.filter((one) => one.offset < end && one.offset + one.size > start);
    for (const one of own) {
      const [first, last] = [Math.max(start, one.offset), Math.min(end, one.offset + one.size)];
      const width = (last - first) * wide;
      const room = Math.floor(width / 6.6);
      const title = one.name + ', ' + hexadecimal(one.offset) + ', ' + plural(one.size, 'byte') + (one.guessed ? ' (size not known)' : '') +
        ': ' + short(one.loads) + ' loads, ' + short(one.stores) + ' stores, ' + short(one.waits) + ' cycles waited' + (one.doc ? '. ' + one.doc : '');
      const text = one.name.length <= room ? one.name : room > 3 ? '…' + one.name.slice(1 - room) : '';
      parts.push(svg('g', { class: 'field' + (one.loads + one.stores > 0 ? ' touched' : '') }, svg('title', null, title),
        svg('rect', { x: x(first), y: y + top, width, height: names }),
        svg('text', { x: x(first) + width / 2, y: y + top + names / 2 + 4, 'text-anchor': 'middle' }, text)));
      [['loads', 'reads'], ['stores', 'writes'], ['waits', 'cost']].forEach(([key, kind], index) => {
        const strength = opacity(Math.sqrt(share(one[key], most[key])));
        for (let byte = first; byte < last; byte += 1) {
          parts.push(svg('rect', { x: x(byte) + 0.5, y: y + top + names + index * lane + 1, width: wide - 1, height: lane - 2, class: kind, 'fill-opacity': strength }, svg('title', null, title)));
        }
      });
    }
    ['read', 'written', 'waited for'].forEach((name, index) => {
      const middle = y + top + names + index * lane + lane / 2;
      parts.push(svg('text', { x: left - 6, y: middle + 4, 'text-anchor': 'end', class: 'tick' }, name));
      parts.push(svg('line', { x1: left, x2: left + LINE * wide, y1: middle + lane / 2, y2: middle + lane / 2, class: 'rule' }));
    });
  }
  const size = { width: left + LINE * wide + 30, height: rows * height };
  const hot = [...found].sort((a, b) => b.waits - a.waits).slice(0, 3).filter((one) => one.waits > 0);
  const label = 'Bytes ' + hexadecimal(from) + ' to ' + hexadecimal(from + bytes) + ': ' + plural(found.length, 'field') +
    (hot.length ? '; waited for most: ' + hot.map((one) => one.name).join(', ') : '; nothing was waited for');
  return scrolled('Ruler of the line', svg('svg', { ...size, viewBox: '0 0 ' + size.width + ' ' + size.height, class: 'ruler', role: 'img', 'aria-label': label }, parts));
}

/** A line's bytes as a strip of cost, a centimetre high at most: for lists. */
function strip(line) {
  const most = Math.max(0, ...line.fields.map((field) => field.waits ?? fieldWaits(field)));
  const cells = line.fields.map((field) => svg('rect', {
    x: 2 * (field.offset % LINE), y: 0, width: 8, height: 12, class: 'cost', 'fill-opacity': opacity(share(fieldWaits(field), most)),
  }));
  return svg('svg', { width: 128, height: 12, viewBox: '0 0 128 12', class: 'strip', 'aria-hidden': 'true' }, svg('rect', { width: 128, height: 12, class: 'hole' }), cells);
}
