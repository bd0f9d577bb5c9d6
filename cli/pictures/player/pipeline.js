// The timeline of a pipeline schedule: a row for each rank, time to the right, a box for each
// computation (pipeline_plays.hpp). What is done is strong, what is to come is pale.

const row = { height: 30, gap: 6, left: 66, right: 6, top: 4 };

// The letter and the micro-batch of "4F12"; the 4 is the stage.
function partsOf(action) {
  const [, letter, batch] = action.match(/^\d+([A-Z]+)(\d+)$/);
  return { letter, batch };
}

// The steps of a play: from one start or end of a computation, or arrival of a message, to the next.
// Activations are held from a forward until the backward that needs them last has ended.
function stepsOf({ boxes, messages }) {
  const all = boxes.flatMap((lane, rank) => lane.map(([action, begin, end]) =>
    ({ rank, action, begin, end, ...partsOf(action) })));
  const oneStage = boxes.every(lane => new Set(lane.map(([action]) => parseInt(action, 10))).size < 2);
  const times = new Set([...all.flatMap(({ begin, end }) => [begin, end]),
    ...messages.map(({ arrives }) => arrives)]);
  return [...times].filter(time => time > 0).sort((a, b) => a - b).map((until, i, ends) => {
    const before = i === 0 ? 0 : ends[i - 1];
    const computed = all.filter(({ begin, end }) => begin < until && end > before);
    const words = computed.map(({ rank, action, letter, batch }) =>
      `rank ${rank} ${oneStage ? letter + batch : action}`);
    const count = (rank, is) => all.filter(box => box.rank === rank && is(box)).length;
    return {
      says: words.join(', ') || 'nothing is computed',
      busy: computed.map(({ rank }) => rank),
      until,
      held: boxes.map((_, rank) =>
        count(rank, ({ letter, begin }) => letter === 'F' && begin < until) -
        count(rank, ({ letter, end }) => 'BW'.includes(letter) && end <= until)),
      messages: messages.filter(({ arrives }) => arrives > before && arrives <= until),
    };
  });
}

const kindOf = letter => ({ F: 'forward', W: 'weight' }[letter] || 'backward');

// The time at a position, and `share` of the step after it.
function timeAt(play, position, share) {
  const before = position === 0 ? 0 : play.steps[position - 1].until;
  return share === 0 ? before : before + share * (play.steps[position].until - before);
}

function drawTimeline(play, position, share) {
  const now = timeAt(play, position, share), last = play.steps[play.steps.length - 1].until;
  const room = byId('timeline').parentNode.clientWidth - row.left - row.right;
  const digits = Math.max(...play.boxes.flat().map(([action]) => partsOf(action).batch.length));
  const shortest = Math.min(...play.boxes.flat().map(([, begin, end]) => end - begin));
  const scale = Math.max(room / last, (8 + 7.5 * digits) / shortest);
  const width = row.left + last * scale + row.right;
  const height = row.top + play.boxes.length * (row.height + row.gap) + 18;
  const held = position === 0 ? play.boxes.map(() => 0) : play.steps[position - 1].held;
  let svg = `<text class="soft" x="42" y="${height - 4}" text-anchor="middle">holds</text>
    <text class="soft" x="${row.left}" y="${height - 4}">time ${digitsOf(now)} of ${digitsOf(last)};
    ${(100 * play.bubble).toFixed(1)} % of the ranks’ time is a bubble</text>`;
  play.boxes.forEach((boxes, rank) => {
    const y = row.top + rank * (row.height + row.gap), text = y + row.height / 2 + 4.5;
    svg += `<text x="10" y="${text}" text-anchor="middle">${rank}</text>
      <rect class="idle" x="${row.left}" y="${y}" width="${last * scale}" height="${row.height}"/>
      <text class="soft" x="42" y="${text}" text-anchor="middle">${held[rank]}</text>`;
    for (const [action, begin, end, pale] of boxes) {
      const { letter, batch } = partsOf(action), x = row.left + begin * scale;
      const state = end <= now ? 'done' : begin < now ? 'running' : 'to-come';
      svg += `<g class="${kindOf(letter)} ${pale ? 'second' : ''} ${state}"
        data-action="${action}"><rect x="${x + 0.75}" y="${y}" rx="3" height="${row.height}"
        width="${(end - begin) * scale - 1.5}"/><text x="${x + (end - begin) * scale / 2}"
        y="${text}" text-anchor="middle">${batch}</text></g>`;
    }
  });
  const x = row.left + now * scale;
  svg += `<line class="now" x1="${x}" x2="${x}" y1="0" y2="${height - 18}"/>`;
  const timeline = byId('timeline');
  timeline.setAttribute('width', width);
  timeline.setAttribute('height', height);
  timeline.setAttribute('aria-label', `Time ${digitsOf(now)} of ${digitsOf(last)}`);
  timeline.innerHTML = svg;
  const frame = timeline.parentNode;
  if (x < frame.scrollLeft + row.left || x > frame.scrollLeft + frame.clientWidth - row.left)
    frame.scrollLeft = x - frame.clientWidth / 3;
  byId('meaning').textContent = shown.family.cell + ' On the left: how many activations of a ' +
    'stage the rank holds.';
  const letters = new Set(play.boxes.flat().map(([action]) => partsOf(action).letter));
  const words = { F: 'F, forward', B: 'B, backward', I: 'I, gradient of the input',
                  W: 'W, gradient of the weights' };
  byId('timeline-legend').innerHTML = Object.keys(words).filter(letter => letters.has(letter))
    .map(letter => `<li><svg width="16" height="12"><g class="${kindOf(letter)} done"><rect
      width="16" height="12" rx="3"/></g></svg> ${words[letter]}</li>`).join('') +
    (play.boxes.flat().some(([, , , pale]) => pale) ? '<li>paler: the second stage of a rank</li>' : '');
}

const digitsOf = time => String(Number(time.toFixed(2)));
