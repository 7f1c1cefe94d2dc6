/** Short ways to the document. */

/** The element with this id, which the page has. */
export function at<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

/** A new element. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A copy of what a `<template>` holds: one element. */
export function copy(template: string): HTMLElement {
  const [element] = at<HTMLTemplateElement>(template).content.children;
  return element?.cloneNode(true) as HTMLElement;
}

/** A part of an element that is known to be there. */
export function part<T extends HTMLElement = HTMLElement>(of: HTMLElement, selector: string): T {
  const found = of.querySelector<T>(selector);
  if (!found) throw new Error(`there is no ${selector}`);
  return found;
}
