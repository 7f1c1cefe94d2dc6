export class Upload {}
