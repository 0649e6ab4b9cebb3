// The first screen: what was run, the verdict, the account, the findings.

function drawTop() {
  const { command, ended, wall_ms: wall } = data.heading;
  document.title = short('perfwrap: ' + (command || 'report'), 120);
  const when = wall ? new Date(wall).toISOString().slice(0, 16).replace('T', ' ') + ' UTC' : '';
  byId('top').append(
    element('div', { class: 'run' },
      element('span', { class: 'name' }, 'perfwrap'),
      element('code', { class: 'command', title: short(command, 2000) }, command)),
    element('p', { class: 'quiet small' }, [ended, when].filter(Boolean).join(' · ')));
}

function drawVerdict() {
  const { sentence: verdict, figures, ends_with: anchor } = data.verdict;
  byId('verdict').append(
    element('h1', { class: verdict.length > 220 ? 'long' : '' }, sentence(verdict)),
    element('dl', { class: 'figures' }, figures.map((figure) =>
      element('div', {}, element('dt', {}, figure.name), element('dd', {}, figure.value)))),
    anchor ? element('p', { class: 'quiet small' }, 'A step ends with each ' + anchor + '.') : '');
}

// The whole run as one strip: outside the training loop, its steady steps, and the rest of the loop.
const RUN_HUES = { outside: '#9aa5b1', loop: '#2f6fdd', inside: '#7aa7ee' };

function drawWholeRun() {
  const run = data.whole_run;
  if (!run) return;
  const label = run.parts.map((row) => row.part + ' ' + row.share + ' %').join(', ');
  byId('verdict').append(
    element('p', { class: 'run-strip small' }, 'Whole run: ' + run.time),
    element('div', { class: 'bar thin', role: 'img', 'aria-label': label }, run.parts.map((row) => {
      const hue = RUN_HUES[row.kind];
      const name = row.part + ' ' + row.share + ' %';
      const piece = element('span', { title: name + ', ' + row.time, class: row.share < 6 ? 'narrow' : '' },
        row.share * (isNarrow() ? 3 : 9) >= name.length * 8 ? name : '');
      Object.assign(piece.style, { flexGrow: row.share, background: hue, color: ink(hue) });
      return piece;
    })),
    element('p', { class: 'quiet small' }, label + '. ' + run.places));
}

function drawAccount() {
  if (!data.account.length) {
    byId('account').hidden = true;
    return;
  }
  const label = data.account.map((row) => row.part + ' ' + row.share).join(', ');
  byId('account').append(
    ...heading('account', 'Where the time of a step goes'),
    element('div', { class: 'bar', role: 'img', 'aria-label': label }, data.account.map((row) => {
      const hue = PARTS[row.part] || '#9aa5b1';
      const piece = element('span', { title: row.part + ': ' + row.share + ', ' + (MEANINGS[row.part] || ''), class: row.tenths < 60 ? 'narrow' : '' },
        row.tenths >= (isNarrow() ? 250 : 90) ? row.part + ' ' + Math.round(row.tenths / 10) + ' %' : '');
      Object.assign(piece.style, { flexGrow: row.tenths, background: hue, color: ink(hue) });
      return piece;
    })),
    element('ul', { class: 'parts' }, data.account.map((row) => {
      const swatch = element('span', { class: 'swatch' });
      swatch.style.background = PARTS[row.part] || '#9aa5b1';
      return element('li', {}, swatch, element('b', {}, row.share),
        element('span', {}, row.part, element('span', { class: 'quiet' }, explained(row.part))));
    })));
}

// The meaning of a part, without repeating its name.
function explained(part) {
  const meaning = MEANINGS[part] || '';
  return meaning.startsWith(part) ? meaning.slice(part.length) : meaning && ' ' + meaning;
}

function drawFindings() {
  const many = data.findings.length;
  byId('findings').append(
    ...heading('findings', 'Findings', many ? '' : 'No rule found a problem.'),
    ...data.findings.map(drawnFinding),
    data.unhelpful.length ? element('h3', { class: 'part-title' }, 'Would not help') : '',
    data.unhelpful.length ? element('ul', { id: 'unhelpful' }, data.unhelpful.map((words) => element('li', {}, sentence(words)))) : '');
  const first = byId('findings').querySelector('details.finding');
  if (first) first.open = true;
}

function drawnFinding(finding, number) {
  const place = finding.place;
  const meter = element('i', {});
  meter.style.width = Math.min(100, 100 * finding.share) + '%';
  const where = [finding.severity, finding.rule, place ? short(place.at, 100) : ''];
  if (finding.ranks.length) where.push((finding.ranks.length > 1 ? 'ranks ' : 'rank ') + short(finding.ranks.join(', '), 40));
  return element('details', { class: 'finding', id: 'finding-' + finding.id, toggle: (event) => followFinding(event, number) },
    element('summary', {},
      element('span', { class: 'number' }, number + 1 + '.'),
      element('span', { class: 'headline' }, sentence(finding.sentence)),
      element('span', { class: 'cost severity-' + finding.severity }, finding.cost),
      element('span', { class: 'where' }, where.filter(Boolean).join(' · ')),
      finding.cost ? element('span', { class: 'meter severity-' + finding.severity }, meter) : ''),
    element('div', { class: 'body' },
      element('div', { class: 'mend' },
        place ? drawnPlace(place) : '',
        element('h3', {}, 'Fix'),
        element('p', { class: 'edit' }, sentence(finding.advice)),
        finding.gain ? element('p', { class: 'small quiet' }, 'Gain: ' + sentence(finding.gain) + (finding.basis ? ' (' + sentence(finding.basis) + ')' : '') + '.') : '',
        finding.experiment ? drawnExperiment(finding.experiment) : '',
        finding.others.length ? drawnOptions(finding.others) : ''),
      element('div', { class: 'evidence' },
        element('h3', {}, 'Evidence'),
        element('ul', {}, finding.evidence.map((words) => element('li', {}, sentence(words)))),
        element('div', { class: 'buttons' },
          hasEvidence(number) ? element('button', { click: () => showFinding(number), 'data-show': number }, 'Show in the charts') : '',
          laneOf(number) >= 0 ? element('button', { click: () => showLane(laneOf(number)) }, 'Show its most expensive step') : '',
          element('a', { class: 'small', href: '#finding-' + finding.id }, 'Link to this finding'))),
      drawnDocumentation(finding)));
}

// The other ways to fix it, the best first.
function drawnOptions(options) {
  return [
    element('h3', {}, 'Or'),
    element('ul', { class: 'options' }, options.map((option) => element('li', {},
      sentence(option.advice),
      option.gain ? element('span', { class: 'small quiet' }, ' Step time ' + option.gain + (option.basis ? ' (' + sentence(option.basis) + ')' : '') + '.') : '',
      option.experiment ? element('div', {}, element('code', { class: 'small' }, option.experiment)) : ''))),
  ];
}

function drawnPlace(place) {
  return [
    element('h3', {}, 'Code' + (place.function && place.function !== '<module>' ? ', in ' + place.function : '')),
    place.lines.length ? element('pre', { class: 'lines' }, place.lines.map(([number, text, named]) =>
      element('span', { class: 'row' + (named ? ' named' : '') },
        element('span', { class: 'at' }, String(number)), element('span', {}, text || ' ')))) : '',
    place.note ? element('p', { class: 'quiet small' }, '(' + place.note + ')') : '',
  ];
}

function drawnExperiment(command) {
  const copy = element('button', { click: () => copied(command, copy) }, 'Copy');
  return [
    element('h3', {}, 'Measure the fix'),
    element('div', { class: 'try' }, element('code', {}, command), copy),
  ];
}

function copied(text, button) {
  const done = () => { button.textContent = 'Copied'; };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => {});
}

function drawnDocumentation(finding) {
  const { summary, sections } = finding.documentation;
  if (!sections.length) return '';
  return element('details', { class: 'small' },
    element('summary', { class: 'quiet' }, 'About this rule, and when it is wrong'),
    element('p', {}, summary),
    sections.map(([title, texts]) => [element('h3', {}, title), texts.map((text) => element('p', {}, text))]));
}
