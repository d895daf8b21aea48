// Looks at the page that is open: whether every text can be read (WCAG 2 AA), and whether the page is as wide as the window.
(() => {
  const channels = (colour) => {
    const found = colour.match(/^rgba?\(([^)]*)\)$/);
    if (!found) return null;
    const [r, g, b, a = 1] = found[1].split(/[ ,/]+/).map(Number);
    return { rgb: [r, g, b], alpha: a };
  };
  const luminance = ([r, g, b]) => {
    const part = (value) => {
      const v = value / 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const contrast = (one, other) => {
    const [a, b] = [luminance(one), luminance(other)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  // What a text stands on: the box of a picture that it is in, else the nearest element with a background.
  const ground = (element) => {
    const box = element instanceof SVGElement && element.parentNode.querySelector(":scope > rect.box");
    if (box) return channels(getComputedStyle(box).fill);
    for (let at = element; at; at = at.parentElement) {
      const found = channels(getComputedStyle(at).backgroundColor);
      if (found && found.alpha === 1) return found;
    }
    return { rgb: [255, 255, 255], alpha: 1 };
  };
  const { scrollWidth, clientWidth } = document.documentElement;
  const isWide = scrollWidth > clientWidth;
  // Whether a text reaches beyond the window, and nothing around it scrolls.
  const isBeyond = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    return range.getBoundingClientRect().right > clientWidth && !node.parentElement.closest(".scroll,pre");
  };
  const findings = [];
  let texts = 0;
  let why = "";
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const text = node.data.trim();
    const element = node.parentElement;
    if (!text || ["TITLE", "STYLE", "title", "desc"].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    if (style.visibility !== "visible" || element.getClientRects().length === 0) continue;
    texts += 1;
    if (isWide && !why && isBeyond(node)) why = `, for "${text.slice(0, 80)}"`;
    const front = channels(element instanceof SVGElement ? style.fill : style.color);
    const behind = ground(element);
    if (!front || front.alpha !== 1 || !behind) {
      findings.push(`the colours of "${text.slice(0, 40)}" are not known: ${style.color}, ${style.fill}`);
      continue;
    }
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const ratio = contrast(front.rgb, behind.rgb);
    if (ratio < (isLarge ? 3 : 4.5)) {
      findings.push(`"${text.slice(0, 40)}" has a contrast of ${ratio.toFixed(2)}`);
    }
  }
  if (isWide) findings.push(`it is ${scrollWidth} pixels wide in a window of ${clientWidth}${why}`);
  return { texts, findings };
})()
