// Elements are made here and nowhere else: text goes in as text, never as markup.

const data = JSON.parse(document.getElementById('data').textContent);
document.getElementById('data').remove();

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ''));
  return made;
}

function byId(id) {
  return document.getElementById(id);
}

function heading(id, text, note) {
  return [
    element('h2', { id: id + '-title' }, text),
    note ? element('p', { class: 'quiet small' }, note) : '',
  ];
}

const ARRAYS = { f4: Float32Array, i4: Int32Array, u4: Uint32Array, u1: Uint8Array };

function numbers(packed) {
  if (!packed) return null;
  const raw = atob(packed.b);
  const bytes = new Uint8Array(raw.length);
  for (let place = 0; place < raw.length; place += 1) bytes[place] = raw.charCodeAt(place);
  const values = new ARRAYS[packed.d](bytes.buffer);
  return packed.step ? Float64Array.from(values, (value) => packed.first + value * packed.step) : values;
}

// Plotly reads some markup in its texts: what the user's program wrote must not be any.
const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;' };

function plain(text, width) {
  const lines = String(text).split('\n').flatMap((line) => wrapped(line, width || 90));
  return lines.slice(0, 12).map((line) => line.replace(/[&<>]/g, (sign) => ENTITIES[sign])).join('<br>');
}

function wrapped(line, width) {
  const signs = Array.from(line);
  const found = [];
  for (let place = 0; place === 0 || place < signs.length; place += width) {
    found.push(signs.slice(place, place + width).join(''));
  }
  return found;
}

function short(text, most) {
  const signs = Array.from(String(text));
  return signs.length <= most ? signs.join('') : signs.slice(0, most - 1).join('') + '…';
}

// A sentence whose numbers keep their units on the same line.
function sentence(text) {
  return String(text).replace(/(\d) (?=(%|ns|µs|ms|s|min|h|B|[KMGT]iB|GB\/s|samples\/s)(?![\w/]))/g, '$1\u00a0');
}

const FORMATS = {};

function fixed(value, digits) {
  FORMATS[digits] = FORMATS[digits] || new Intl.NumberFormat('en', { maximumSignificantDigits: digits });
  return FORMATS[digits].format(value);
}
